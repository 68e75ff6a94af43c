"""Names of the entries of arrays."""

import numpy as np


def coordinate_names(shape: tuple[int, ...], name: str = "z") -> tuple[str, ...]:
    """One for each entry of an array, in order.

    Example:
        >>> coordinate_names((2,)), coordinate_names((), "sigma")
        (('z[0]', 'z[1]'), ('sigma',))
    """
    return tuple(f"{name}[{', '.join(map(str, index))}]" if index else name for index in np.ndindex(shape))
