"""Names of the entries of arrays."""

import numpy as np


def coordinate_names(shape: tuple[int, ...], name: str = "z") -> tuple[str, ...]:
    """One for each entry of an array, in order.

    Example:
        >>> coordinate_names((2,)), coordinate_names((), "sigma")
        (('z[0]', 'z[1]'), ('sigma',))
    """
    return tuple(f"{name}[{', '.join(map(str, index))}]" if index else name for index in np.ndindex(shape))


def free_names(shape: tuple[int, ...], name: str, transform: str | None) -> tuple[str, ...]:
    """Of the unconstrained coordinates behind a variable, which are what is fitted.

    Args:
        shape: of the unconstrained array.
        name: of the variable.
        transform: from the variable to it, as "log" or "logit"; "free" where no word says it, None if there
            is none.

    Example:
        >>> free_names((), "sigma", "log"), free_names((2,), "weights", "free"), free_names((), "mu", None)
        (('log sigma',), ('free weights[0]', 'free weights[1]'), ('mu',))
    """
    return coordinate_names(shape, name if transform is None else f"{transform} {name}")
