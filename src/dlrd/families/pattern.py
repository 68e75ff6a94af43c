"""Which pairs of coordinates a log density couples: where its Hessian is not zero."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Int


class Pattern(NamedTuple):
    """The entries of a symmetric matrix below its diagonal that may differ from zero; all on it may.

    For a posterior's Hessian: two coordinates without an entry are independent given all others.
    """

    dim: int
    rows: Int[np.ndarray, " entry"]  # larger than the column, each pair once
    columns: Int[np.ndarray, " entry"]
