"""Checks of arguments that every room makes in the same words. No array library is needed for them."""

from numbers import Integral, Real
from typing import Any, cast

MAX_SHOWN = 60
"""Characters of a value that an error message repeats."""


def check_count(name: str, value: Any) -> None:
    """Raises unless `value` is a whole number of at least 1; NumPy's are fine, booleans are not."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {shown(value)}")


def check_between(name: str, value: Any, low: float, high: float) -> None:
    """Raises unless low < value < high. Traced values pass: they have no value yet."""
    if isinstance(value, Real) and not low < cast("float", value) < high:
        bounds = f"above {low:g}" if high == float("inf") else f"between {low:g} and {high:g}"
        raise ValueError(f"{name} must be {bounds}, got {value}")


def check_not_negative(name: str, value: Any) -> None:
    """Raises unless 0 <= value < ∞. Traced values pass."""
    if isinstance(value, Real) and not 0 <= cast("float", value) < float("inf"):
        raise ValueError(f"{name} must be at least 0, got {value}")


def shown(value: Any) -> str:
    """The value as error messages name it: its type and, shortened, what it is."""
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + '...'}"
