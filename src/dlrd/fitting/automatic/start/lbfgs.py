"""L-BFGS: down to the next minimum, as of −log p, in coordinates in which it is round."""

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from dlrd.fitting.automatic.start.objective import SpentError

MEMORY = 20
MAX_ITERATIONS = 200
MAX_TRIALS = 30
NUM_QUIET = 5
"""Steps that together must gain little before a descent counts as at rest."""
SUFFICIENT, STEEP = 1e-4, 0.9
"""Of the slope at the start of a line: the decrease to reach, and what must not be left at its end."""

_Vector = Float[np.ndarray, " dim"]


class Loss(Protocol):
    """What is minimised."""

    dtype: jnp.dtype  # that it is evaluated in

    def __call__(self, point: _Vector, /) -> tuple[float, _Vector]:
        """The value and the gradient at a point; infinite where either is not finite.

        Raises:
            SpentError: beyond the budget; a descent then ends where it is.
        """
        ...


class Whitening(Protocol):
    """Coordinates in which the loss is round, as those of a `Curvature`."""

    def whiten(self, slope: _Vector) -> _Vector: ...

    def unwhiten(self, step: _Vector) -> _Vector: ...


class Descent(NamedTuple):
    """Where a descent ended, and its way."""

    point: _Vector
    value: float  # −log p there
    slope: _Vector  # its gradient, in the original coordinates
    path: list[_Vector]  # all points, the first included
    steps: list[_Vector]  # the newest, in whitened coordinates
    changes: list[_Vector]  # of the slope, whitened, along these steps
    is_at_rest: bool  # whether the rest of the way down is estimated to be below the tolerance


class _Place(NamedTuple):
    point: _Vector
    value: float
    slope: _Vector
    whitened: _Vector  # the slope in whitened coordinates


_Found = TypeVar("_Found")
Search = Generator[_Vector, tuple[float, _Vector], _Found]
"""A search that asks for the value and the slope at one point after another, and returns what it has found.

`SpentError` in place of an answer ends it where it is.
"""


def driven(search: Search[_Found], objective: Loss) -> _Found:
    """What a search finds, with the answers of `objective`."""
    return driven_together([search], lambda points: [objective(points[0])])[0]


@np.errstate(
    over="ignore", invalid="ignore", divide="ignore"
)  # a density without bound grows until it overflows, and what is not finite is asked for where it counts
def driven_together(
    searches: Sequence[Search[_Found]],
    answers_fn: Callable[[Sequence[_Vector]], Sequence[tuple[float, _Vector]]],
) -> list[_Found]:
    """What several searches find, whose questions are answered all at once, as long as any goes on."""
    found: dict[int, _Found] = {}
    asked: dict[int, _Vector] = {}

    def advance(number: int, step_fn: Callable[[], _Vector]) -> None:
        try:
            asked[number] = step_fn()
        except StopIteration as end:
            found[number] = end.value

    for number, search in enumerate(searches):
        advance(number, lambda search=search: next(search))
    while asked:
        waiting, points = list(asked), list(asked.values())
        asked.clear()
        try:
            answers = answers_fn(points)
        except SpentError as error:
            for number in waiting:
                advance(number, lambda number=number, error=error: searches[number].throw(error))
        else:
            for number, answer in zip(waiting, answers, strict=True):
                advance(number, lambda number=number, answer=answer: searches[number].send(answer))
    return [found[number] for number in range(len(searches))]


def descend(
    objective: Loss, start: _Vector, curvature: Whitening | None, tolerance: float, **options: Any
) -> Descent:
    """Minimises −log p from `start`: a `descent` with the answers of `objective`."""
    return driven(descent(objective.dtype, start, curvature, tolerance, **options), objective)


def descent(
    dtype: jnp.dtype,
    start: _Vector,
    curvature: Whitening | None,
    tolerance: float,
    is_known: Callable[[_Vector], bool] = lambda point: False,
    max_iterations: int = MAX_ITERATIONS,
) -> Search[Descent]:
    """Minimises −log p from `start`.

    Args:
        dtype: that it is evaluated in.
        start: where it must be finite.
        curvature: whose inverse root whitens; None for the coordinates as they are.
        tolerance: ends once Newton's estimate of what is left, in nats, is below. After steps along steep
            directions that is too low for the others; therefore the gain of the latest steps together must be
            below, too, or the estimate for a curvature of 1.
        is_known: ends at a point for which it holds.
        max_iterations: ends after so many.
    """
    value, slope = yield start
    if not np.isfinite(value):
        return Descent(start, value, slope, [start], [], [], is_at_rest=False)
    here = _Place(start, value, slope, _whitened(curvature, slope))
    path, steps, changes = [start], [], []
    is_at_rest, values = False, [value]
    for _ in range(max_iterations):
        direction = -_newton(here.whitened, steps, changes)
        slope_along = float(here.whitened @ direction)
        plain = 0.5 * float(here.whitened @ here.whitened)
        gain = values[-1 - NUM_QUIET] - values[-1] if len(values) > NUM_QUIET else np.inf
        is_at_rest = bool(steps) and max(-0.5 * slope_along, min(gain, plain)) < tolerance
        if is_at_rest or is_known(here.point) or not slope_along < 0:
            break
        try:
            found = yield from _line(dtype, here, curvature, direction, slope_along)
        except SpentError:
            break
        if found is None:
            break
        there, length = found
        step, change = length * direction, there.whitened - here.whitened
        if step @ change > 1e-10 * np.linalg.norm(step) * np.linalg.norm(change):
            steps, changes = [*steps[1 - MEMORY :], step], [*changes[1 - MEMORY :], change]
        path.append(there.point)
        values.append(there.value)
        here = there
    return Descent(here.point, here.value, here.slope, path, steps, changes, is_at_rest)


def _newton(slope: _Vector, steps: list[_Vector], changes: list[_Vector]) -> _Vector:
    """The inverse Hessian, as the latest steps show it, times the slope: the two loops of L-BFGS."""
    if not steps:
        return slope / max(1.0, float(np.linalg.norm(slope)))  # a first step of length 1 at the most
    # In its compact form (Byrd, Nocedal and Schnabel, 1994): a few products in place of two loops.
    made, changed = np.array(steps), np.array(changes)
    products = made @ changed.T
    scale = products[-1, -1] / (changed[-1] @ changed[-1])
    upper = np.triu(products)
    inner = np.linalg.solve(upper, made @ slope)
    outer = products.diagonal() * inner + scale * (changed @ (changed.T @ inner - slope))
    return scale * (slope - changed.T @ inner) + made.T @ np.linalg.solve(upper.T, outer)


def _line(
    dtype: jnp.dtype, here: _Place, curvature: Whitening | None, direction: _Vector, slope_along: float
) -> Search[tuple[_Place, float] | None]:
    """A point along the line that is lower, and no longer steep; None if there is no lower one."""
    shortest, longest, length = 0.0, np.inf, 1.0
    moved = direction if curvature is None else np.asarray(type(curvature).unwhiten(curvature, direction))
    rounding = 10 * float(jnp.finfo(dtype).eps) * abs(here.value)
    best = None
    for _ in range(MAX_TRIALS):
        point = here.point + length * moved
        value, slope = yield point
        if value > here.value + SUFFICIENT * length * slope_along + rounding:
            longest = length
            length = 0.5 * (shortest + longest) if shortest else 0.25 * length
            continue
        best = _Place(point, value, slope, _whitened(curvature, slope)), length
        if best[0].whitened @ direction >= STEEP * slope_along or longest < np.inf:
            return best
        shortest, length = length, 2 * length
    return best


def _whitened(curvature: Whitening | None, slope: _Vector) -> _Vector:
    # By the class: for each bound method equinox makes an object, which takes longer than the product.
    return slope if curvature is None else np.asarray(type(curvature).whiten(curvature, slope))
