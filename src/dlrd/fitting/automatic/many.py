"""`dlrd.fit_many` without an optimiser: automatic fits, side by side where that is safe."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jaxtyping import Array, Key

from dlrd.fitting.progress import Reading, progress_display
from dlrd.fitting.request import Request
from dlrd.fitting.result import Fit
from dlrd.fitting.turns import can_hand_on, in_turns, num_cores
from dlrd.models import Model

FitFn = Callable[[Model, Key[Array, ""], Request], Fit]
"""One automatic fit."""


def fit_each(fit_fn: FitFn, model: Model, keys: Sequence[Key[Array, ""]], request: Request) -> list[Fit]:
    """One fit a key, each with a checkpoint of its own; what they find does not depend on the others.

    Args:
        fit_fn: one fit.
        model, keys: those of `dlrd.fit_many`, checked.
        request: one with an aim.
    """
    own = [request.in_folder(str(number)) for number in range(len(keys))]
    num_threads = min(len(keys), num_cores())
    if num_threads < 2 or not _is_all_jax(model) or not can_hand_on():
        return [fit_fn(model, key, each) for key, each in zip(keys, own, strict=True)]
    steps = [0] * len(keys)
    num_ended = 0
    with progress_display(request.watching.progress, len(keys), "fits", "looking for starts") as show:

        def job(number: int) -> Callable[[], Fit]:
            def tell(num_steps: int) -> None:
                steps[number] = num_steps
                show(Reading(sum(steps), num_ended, f"{sum(steps):,} steps"))

            watching = own[number].watching
            # Where nothing is shown, fits need not say how far they are.
            told = watching._replace(progress=tell if watching.progress else False)

            def fit() -> Fit:
                nonlocal num_ended
                found = fit_fn(model, keys[number], own[number]._replace(watching=told))
                num_ended += 1
                if watching.progress:
                    tell(found.num_steps)
                return found

            return fit

        return in_turns([job(number) for number in range(len(keys))], num_threads)


def _is_all_jax(model: Any) -> bool:
    """Whether programs are all that it does: it is a tree of jax then, and calls nothing back on the host."""
    return not jax.tree_util.all_leaves([model])
