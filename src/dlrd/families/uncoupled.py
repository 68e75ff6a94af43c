"""A normal with a pattern of its own where the model has none: independent coordinates, fitted as such."""

from typing import Any

import equinox as eqx
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import ArrayLike

from dlrd.families.curvature import Curvature
from dlrd.families.curved import Curved
from dlrd.families.mean_field import MeanFieldNormal


class Uncoupled(MeanFieldNormal):
    """A mean-field normal that users get as another kind, which contains it."""

    kind: type = eqx.field(static=True)  # with `of_scales`

    def __init__(self, loc: ArrayLike, log_scale: ArrayLike, kind: type):
        super().__init__(loc, log_scale)
        self.kind = kind

    @property
    def member(self) -> Any:
        return self.kind.of_scales(self.loc, self.std)


def uncoupled(loc: ArrayLike, std: ArrayLike, curvature: Curvature, dtype: DTypeLike, kind: type) -> Curved:
    """The normal with these means and sds, with all that makes the fit of a mean-field normal a good one."""
    mean: Any = np.asarray(loc, dtype)
    log_scale: Any = np.asarray(np.log(np.asarray(std, float)), dtype)
    return Curved(Uncoupled(mean, log_scale, kind), curvature).with_curvature(curvature)
