"""How the curvature of a log density is measured: whole, or only where its pattern has entries."""

import numpy as np
from jaxtyping import Float

from dlrd.families import Patterned, Startable
from dlrd.families.couplings import Couplings, couplings
from dlrd.families.curvature import MAX_WHOLE, Curvature, diagonal_curvature
from dlrd.families.sparse_curvature import sparse_curvature
from dlrd.fitting.automatic.start.funnel import Funnel, find_funnel
from dlrd.fitting.automatic.start.mode import dense_curvature
from dlrd.fitting.automatic.start.objective import Objective
from dlrd.fitting.automatic.start.pattern import find_pattern

NUM_ROUGH = 2
"""Points at which the curvature is measured on the way, of those given; and at which the pattern is found."""
CREDIBLE = 0.1, 10.0
"""Mean curvature times variance, at the best mean-field normal, as few points may show it; the truth is 1."""
MAX_DENSE = 1024
"""Dimensions up to which the whole Hessian is measured once, if it has no pattern that would spare that."""
SHIFTS = 0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0
"""Of a Hessian that is not positive definite, in units of the family's own precision."""

_Points = Float[np.ndarray, "point dim"]
_Vector = Float[np.ndarray, " dim"]
_Matrix = Float[np.ndarray, "dim dim"]


class Survey:
    """Measures the curvature of a log density for a family; finds its pattern where that pays.

    Args:
        objective: −log p.
        family: that the curvature is for.
    """

    def __init__(self, objective: Objective, family: Startable):
        self._objective, self._dim = objective, len(family.mean)
        self._needs_pattern = isinstance(family, Patterned)
        self._needs_whole = family.needs_whole_curvature
        self._couplings: Couplings | None = None
        self._is_known = False  # whether the couplings were looked for

    def on_the_way(self, points: _Points, std: _Vector) -> Curvature:
        """The mean of the Hessian over a few points, made positive; or that of independent coordinates.

        Args:
            points: draws of a mean-field normal, mirror images next to each other.
            std: its standard deviations.
        """
        few = points[:NUM_ROUGH]
        if self._dim <= MAX_WHOLE:
            return _dense(np.mean(self._whole(few, std), axis=0), std)
        if not self._is_known:
            self._find(few)
        if self._couplings is None:
            return diagonal_curvature(std)
        products = self._objective.products(few, self._couplings.seeds(float))
        return self._positive(np.mean(products, axis=0), std)

    def at_the_end(self, points: _Points, std: _Vector) -> tuple[Curvature, Funnel | None]:
        """The same where the family is to start, with all points, and the pattern and the funnel found there.

        On the way, terms that vanish far from the posterior may have hidden couplings.
        """
        whole = None
        if self._dim <= MAX_WHOLE:
            whole = self._whole(points[:NUM_ROUGH], std)
        self._find(points[:NUM_ROUGH], whole)
        if self._couplings is not None:
            products = self._objective.products(points, self._couplings.seeds(float))
            diagonals, _ = self._couplings.coloring.recovered(products)
            mean = np.mean(products, axis=0)
            mean[self._couplings.coloring.colors, np.arange(self._dim)] += _missing(
                np.mean(diagonals, axis=0), std
            )
            return self._positive(mean, std), find_funnel(points, diagonals)
        if self._dim > MAX_DENSE:
            return diagonal_curvature(std), None
        more = points[:NUM_ROUGH] if whole is None else points[NUM_ROUGH:]
        rest = self._whole(more, std)
        whole = rest if whole is None else np.concatenate([whole, rest])
        funnel = find_funnel(points[: len(whole)], np.diagonal(whole, axis1=1, axis2=2))
        mean = np.mean(whole, axis=0)
        return _dense(mean + np.diag(_missing(mean.diagonal(), std)), std), funnel

    def _whole(self, points: _Points, std: _Vector) -> Float[np.ndarray, "point dim dim"]:
        """The Hessians, along directions of the family's own scale, in which differences are taken."""
        return self._objective.products(points, np.diag(std)) / std[:, None]

    def _find(self, points: _Points, whole: Float[np.ndarray, "point dim dim"] | None = None) -> None:
        """The couplings of coordinates, if there are few enough to be worth it, and Hessians are exact."""
        self._is_known = True
        if not self._objective.is_smooth:
            return
        weights = 0.5 ** np.arange(len(points))  # so that nothing cancels

        def products(directions: Float[np.ndarray, "direction dim"]) -> Float[np.ndarray, "direction dim"]:
            if whole is not None:
                return directions @ np.tensordot(weights, whole, axes=1)
            return np.tensordot(weights, self._objective.products(points, directions), axes=1)

        pattern, _ = find_pattern(products, self._dim, np.random.default_rng(0))
        found = None if pattern is None else couplings(pattern)
        is_saving = found is not None and found.is_saving
        is_sparse = found is not None and found.is_sparse and self._dim <= MAX_WHOLE
        # Hessians of a pattern that spares nothing would be all that a fit takes.
        is_usable = is_saving or (found is not None and found.is_for_gradients)
        is_wanted = (self._needs_pattern and is_usable) or (self._needs_whole and is_sparse)
        is_wanted |= is_saving and (self._needs_whole or self._dim > MAX_WHOLE)
        self._couplings = found if is_wanted else None

    def _positive(self, products: Float[np.ndarray, "color dim"], std: _Vector) -> Curvature:
        """The sparse curvature with these products, shifted as far as it takes to be positive definite."""
        assert self._couplings is not None
        seeds = self._couplings.seeds(float)
        if not np.isfinite(products).all():
            return diagonal_curvature(std)
        shifted = (products + shift * seeds / std**2 for shift in SHIFTS)
        found = (sparse_curvature(self._couplings, each) for each in shifted)
        return next((each for each in found if each is not None), diagonal_curvature(std))


def _missing(diagonal: _Vector, std: _Vector) -> _Vector:
    """What the mean curvature lacks along coordinates where it cannot be right.

    At the best mean-field normal it is one over the variance; a density with edges or plateaus shows none of
    that at any point.
    """
    scaled = diagonal * std**2
    is_wrong = ~((scaled > CREDIBLE[0]) & (scaled < CREDIBLE[1]))
    return np.where(is_wrong, 1 / std**2 - np.nan_to_num(diagonal), 0.0)


def _dense(hessian: _Matrix, std: _Vector) -> Curvature:
    if not np.isfinite(hessian).all():
        return diagonal_curvature(std)
    return dense_curvature(np.diag(std), std[:, None] * hessian * std)[0]
