"""Checks of arguments that every room makes in the same words. No array library is needed for them."""

from numbers import Integral
from typing import Any

MAX_SHOWN = 60
"""Characters of a value that an error message repeats."""


def check_count(name: str, value: Any) -> None:
    """Raises unless `value` is a whole number of at least 1; NumPy's are fine, booleans are not."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {shown(value)}")


def shown(value: Any) -> str:
    """The value as error messages name it: its type and, shortened, what it is."""
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + '...'}"
