"""The nearest mode of a posterior, and the curvature there."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from dlrd.families.curvature import Curvature, DenseCurvature, LowRankCurvature
from dlrd.families.sparse_curvature import sparse_curvature
from dlrd.fitting.automatic.start.lbfgs import MAX_ITERATIONS, Descent, Search, descent, driven
from dlrd.fitting.automatic.start.objective import Objective, SpentError

MAX_ROUNDS = 6
NUM_PROBES = 16
"""For the Hessian's diagonal in many dimensions, two gradients each."""
TOLERANCE, TOLERANCE_PER_DIM = 1e-2, 1e-4
"""How far from the mode, in nats, a search may end."""
MIN_EIGENVALUE = 1e-6
"""Of the Hessian scaled to a unit diagonal: below, a direction counts as that flat."""
MIN_CURVATURE = 1e-12
"""Along a coordinate: below, it counts as that flat."""
FINE_DIAGONAL = 1e-4, 1e8
"""Of the Hessian in the coordinates of its differences: beyond, their steps were too long or too short."""


class Mode(NamedTuple):
    """Where a search for a mode ended."""

    point: Float[np.ndarray, " dim"]
    log_density: float
    curvature: Curvature  # of absolute eigenvalues where it is no maximum
    is_found: bool  # whether it is a maximum, to the tolerance
    is_cut: bool  # whether the budget ended the search, so that nobody knows
    path: list[Float[np.ndarray, " dim"]]  # of the first descent

    def distance(self, point: Float[np.ndarray, " dim"]) -> float:
        """From the mode, in the units of its curvature."""
        shift, kind = point - self.point, type(self.curvature)  # by the class, as in `lbfgs.py`
        return float(np.sqrt(np.maximum(shift @ np.asarray(kind.times(self.curvature, shift[None]))[0], 0)))


def find_mode(objective: Objective, start: Float[np.ndarray, " dim"], is_whole: bool) -> Mode:
    """The mode that a way down from `start` leads to: a `search` with the answers of `objective`."""
    mode = driven(search(objective, start, is_whole), objective)
    assert mode is not None
    return mode


def search(
    objective: Objective,
    start: Float[np.ndarray, " dim"],
    is_whole: bool,
    curvature: Curvature | None = None,
    is_known: Callable[[Float[np.ndarray, " dim"]], bool] = lambda point: False,
    max_iterations: int = MAX_ITERATIONS,
) -> Search[Mode | None]:
    """Descends from `start`, whitens with the curvature found there, and again until both fit.

    Args:
        objective: −log p, of which Hessians are asked.
        start: where to begin.
        is_whole: whether to measure the whole Hessian, or its diagonal and the directions of the descent.
        curvature: of the coordinates of the first descent, if something is known.
        is_known: ends the search, with None, at a point for which it holds.
        max_iterations: of the first descent; a search that is not at rest by then ends with None.
    """
    tolerance = max(TOLERANCE, TOLERANCE_PER_DIM * len(start))
    measure = _dense if is_whole else _low_rank
    way = yield from descent(objective.dtype, start, curvature, tolerance, is_known, max_iterations)
    if is_known(way.point) or (max_iterations < MAX_ITERATIONS and not way.is_at_rest):
        return None
    path, number = way.path, 1
    while True:
        try:
            measured, is_trusted = measure(objective, way, curvature)
        except SpentError:
            known = curvature or _secant(way)
            return Mode(way.point, -way.value, known, is_found=False, is_cut=True, path=path)
        left = 0.5 * float(np.sum(measured.whiten(way.slope) ** 2))
        is_found = is_trusted and left < tolerance
        is_hopeless = not np.isfinite(way.value) or (number > 1 and not way.is_at_rest)
        if is_found or is_hopeless or number == MAX_ROUNDS:
            return Mode(way.point, -way.value, measured, is_found, is_cut=False, path=path)
        curvature, number = measured, number + 1
        way = yield from descent(objective.dtype, way.point, curvature, tolerance)


def dense_curvature(
    root: Float[np.ndarray, "dim dim"], hessian: Float[np.ndarray, "dim dim"]
) -> tuple[DenseCurvature, bool]:
    """The curvature from a Hessian in the coordinates of `root`, and whether that is positive definite."""
    hessian = _finite(_symmetric(hessian))
    scale = np.sqrt(np.maximum(np.abs(hessian.diagonal()), MIN_CURVATURE))
    try:
        eigenvalues, vectors = np.linalg.eigh(hessian / np.outer(scale, scale))
        clipped = np.maximum(np.abs(eigenvalues), MIN_EIGENVALUE)
        half = root @ (vectors / np.sqrt(clipped) / scale[:, None])  # half halfᵀ is the inverse
        inverse_root = np.linalg.qr(half.T)[1].T
        inverse_root *= np.where(inverse_root.diagonal() < 0, -1.0, 1.0)
        other_half = np.linalg.solve(root.T, scale[:, None] * vectors * np.sqrt(clipped))
    except np.linalg.LinAlgError:  # what rounding has left of a steep density can be anything
        spread = np.linalg.norm(root, axis=1) / scale
        return DenseCurvature(np.diag(spread**-2), np.diag(spread)), False
    curvature = DenseCurvature(other_half @ other_half.T, inverse_root)
    return curvature, bool(eigenvalues.min() > 0)


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def mean_curvature(
    objective: Objective, points: Float[np.ndarray, "point dim"], known: Any, trust: float
) -> Curvature:
    """The known curvature and the mean over the points, for which `trust` is the weight; as known if not
    positive.

    Where log p is not quadratic, its mean curvature over a family's draws is what the family's optimum
    depends on, not that at a mode.
    """
    if known.couplings is not None:
        products = np.mean(objective.products(points, known.couplings.seeds(float)), axis=0)
        return sparse_curvature(known.couplings, products, known, trust) or known
    root = np.asarray(known.root, float)
    measured = np.mean(objective.products(points, root.T), axis=0) @ root
    if not np.isfinite(measured).all():
        return known
    curvature, is_positive = dense_curvature(root, (1 - trust) * np.eye(len(root)) + trust * measured)
    return curvature if is_positive else known


def _dense(objective: Objective, descent: Descent, known: Any) -> tuple[DenseCurvature, bool]:
    root = np.eye(len(descent.point)) if known is None else known.root
    hessian = objective.products(descent.point[None], root.T)[0] @ root
    curvature, is_positive = dense_curvature(root, hessian)
    smallest, largest = FINE_DIAGONAL
    is_fine = bool(np.all((hessian.diagonal() > smallest) & (hessian.diagonal() < largest)))
    return curvature, is_positive and is_fine


def _low_rank(objective: Objective, descent: Descent, known: Any) -> tuple[LowRankCurvature, bool]:
    dim = len(descent.point)
    if known is None:
        signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(NUM_PROBES, dim))
        products = _finite(objective.products(descent.point[None], signs)[0])
        diagonal = np.abs(np.mean(signs * products, axis=0))
        scale = 1 / np.sqrt(np.maximum(diagonal, max(1e-8 * np.max(diagonal), MIN_CURVATURE)))
        return LowRankCurvature(scale, np.zeros((dim, 0)), np.zeros(0)), False
    if not descent.steps:
        return known, descent.is_at_rest
    newest = np.stack([np.asarray(known.unwhiten(step)) / known.scale for step in descent.steps], axis=1)
    # Those of the descents before stay: where they are whitened, the newest steps do not show them again.
    basis = np.linalg.qr(np.concatenate([newest, known.directions], axis=1)[:, :dim])[0]
    directions = (known.scale[:, None] * basis).T
    images = _finite(objective.products(descent.point[None], directions)[0]) * known.scale
    eigenvalues, vectors = np.linalg.eigh(_symmetric(images @ basis))
    stretches = 1 / np.sqrt(np.maximum(np.abs(eigenvalues), MIN_EIGENVALUE))
    return LowRankCurvature(known.scale, basis @ vectors, stretches), bool(eigenvalues.min() > 0)


def _secant(descent: Descent) -> DenseCurvature:
    """The curvature as the steps of a first descent show it, without a gradient more: by BFGS."""
    dim = len(descent.point)
    hessian = np.eye(dim)
    for step, change in zip(descent.steps, descent.changes, strict=True):
        if step is descent.steps[0]:
            hessian *= change @ change / (step @ change)
        image = hessian @ step
        hessian += np.outer(change, change) / (step @ change) - np.outer(image, image) / (step @ image)
    return dense_curvature(np.eye(dim), hessian)[0]


def _symmetric(matrix: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
    return 0.5 * (matrix + matrix.T)


def _finite(matrix: Float[np.ndarray, "m n"]) -> Float[np.ndarray, "m n"]:
    """With large numbers in place of infinite ones and zeros in place of nan, as there are beside a wall."""
    return np.nan_to_num(matrix, posinf=1e100, neginf=-1e100)
