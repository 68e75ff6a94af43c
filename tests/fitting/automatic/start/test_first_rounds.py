"""Where a fit in rounds begins: at modes that are found, with the best of several rates."""

from collections.abc import Callable
from dataclasses import replace

import flowjax.distributions
import flowjax.flows
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dlrd
from dlrd.fitting.automatic.plan import ANNEALED_RATE, HIGHER_RATES, LOWER_RATES, Task
from dlrd.fitting.automatic.start import first_rounds
from dlrd.fitting.automatic.start.first_rounds import begin_rounds
from dlrd.fitting.automatic.steps.stepping import take_certificate
from dlrd.fitting.request import Aim

MIXTURE = dlrd.Mixture([dlrd.MeanFieldNormal([0.0], [0.0]), dlrd.MeanFieldNormal([0.1], [0.0])])
FLOW = flowjax.flows.masked_autoregressive_flow(
    jax.random.key(0),
    base_dist=flowjax.distributions.StandardNormal((2,)),
    nn_width=4,
    nn_depth=1,
    flow_layers=1,
)


def two_modes(z):
    """The weights are 0.8 and 0.2."""
    left, right = jnp.log(0.8) - 0.5 * (z[0] + 10) ** 2, jnp.log(0.2) - 0.5 * (z[0] - 10) ** 2
    return jnp.logaddexp(left, right) - 0.5 * jnp.log(2 * jnp.pi)


def test_components_are_at_the_modes_with_their_weights(task: Callable[..., Task]) -> None:
    made = task(dlrd.models.function(two_modes, 1), MIXTURE)
    begun = begin_rounds(made, MIXTURE)
    found = begun.family
    order = np.argsort(np.asarray(found.components.loc)[:, 0])
    np.testing.assert_allclose(np.asarray(found.components.loc)[order, 0], [-10, 10], atol=0.1)
    np.testing.assert_allclose(np.asarray(found.weights)[order], [0.8, 0.2], atol=0.03)
    assert begun.latest is not None
    assert begun.latest.certificate.elbo == pytest.approx(0, abs=0.01)


def test_components_beyond_the_modes_lie_aside(task: Callable[..., Task]) -> None:
    mixture = dlrd.Mixture([dlrd.MeanFieldNormal([0.1 * i], [0.0]) for i in range(5)])
    made = task(dlrd.models.function(two_modes, 1), mixture, aim=Aim(max_gradients=3000))
    placed = first_rounds._at_modes(made, first_rounds.fresh(made, mixture)).origin
    locs = np.asarray(placed.components.loc)[:, 0]
    assert len(set(locs.tolist())) == 5
    near_left = np.abs(locs + 10) < 5
    np.testing.assert_allclose(np.asarray(placed.weights)[near_left].sum(), 0.8, atol=1e-3)


def test_components_stay_where_that_is_better(task: Callable[..., Task]) -> None:
    """The funnel's density has a mode far below where most of it is."""
    mixture = dlrd.Mixture([dlrd.MeanFieldNormal([0.0, m], [-0.5, 0.0]) for m in (-0.5, 0.5)])

    def funnel(z):
        return -(z[0] ** 2) / 18 - z[0] / 2 - 0.5 * z[1] ** 2 * jnp.exp(-z[0]) - 1e-3 * z[1] ** 4

    made = task(dlrd.models.function(funnel, 2), mixture, aim=Aim(max_gradients=3000))
    begun = first_rounds._at_modes(made, first_rounds.fresh(made, mixture))
    given = take_certificate(made, first_rounds.fresh(made, mixture), made.first_gradients)
    assert begun.latest is not None
    assert given.latest is not None
    assert begun.latest.certificate.elbo >= given.latest.certificate.elbo - 1e-9


@pytest.mark.parametrize("changed", [{"has_start": False}, {"has_modes": False}])
def test_modes_are_not_looked_for_where_that_is_not_wanted(task: Callable[..., Task], changed) -> None:
    made = task(dlrd.models.function(two_modes, 1), MIXTURE, **changed)
    state = first_rounds.fresh(made, MIXTURE)
    assert first_rounds._at_modes(made, state) is state


def test_a_far_posterior_takes_the_largest_rate(task: Callable[..., Task]) -> None:
    made = task(dlrd.models.function(lambda z: -0.5 * jnp.sum((z - 100.0) ** 2), 2), FLOW)
    begun = begin_rounds(made, FLOW)
    assert begun.settings[0] == pytest.approx(HIGHER_RATES[-1])


@pytest.mark.parametrize(
    ("elbos", "chosen", "num"),
    [
        ({1e-2: 1.0, 3e-2: 2.0, 1e-1: 3.0}, 1e-1, 3),
        ({1e-2: 1.0, 3e-2: 2.0, 1e-1: 1.5}, 3e-2, 3),
        ({1e-2: 1.0, 3e-2: 0.5, 3e-3: 2.0}, 3e-3, 3),
        ({1e-2: 1.0, 3e-2: 0.5, 3e-3: 0.5}, 1e-2, 3),
        ({1e-2: float("nan"), 3e-2: float("-inf"), 3e-3: 0.5}, 3e-3, 3),
    ],
)
def test_rates_go_up_as_long_as_that_helps_or_else_down(
    task: Callable[..., Task], monkeypatch: pytest.MonkeyPatch, elbos, chosen: float, num: int
) -> None:
    made = task(dlrd.models.function(two_modes, 1), MIXTURE, has_start=False)
    kept = {}

    def run_until(task, state, num_steps):
        rate = float(f"{state.settings[0]:.1g}")
        done = take_certificate(task, state.spent("steps", 8 * num_steps), task.first_gradients)
        seen = done.latest.certificate._replace(elbo=elbos[rate], elbo_error=0.0)
        kept[rate] = replace(done, latest=done.latest._replace(certificate=seen))
        return kept[rate]

    monkeypatch.setattr(first_rounds, "run_until", run_until)
    begun = begin_rounds(made, MIXTURE)
    assert begun.settings[0] == pytest.approx(chosen)
    assert {ANNEALED_RATE, *HIGHER_RATES, *LOWER_RATES} >= set(kept) == set(elbos)
    # All are paid for.
    assert begun.num_gradients == num * (begun.gradients["steps"] + made.first_gradients)
    assert begun.num_gradients < 0.2 * made.max_gradients


def test_no_component_begins_without_a_weight(task: Callable[..., Task]) -> None:
    """One whose weight is next to nothing has no gradient to come back by."""

    def unequal(z):
        return jnp.logaddexp(-0.5 * (z[0] + 10) ** 2, -40 - 0.5 * (z[0] - 10) ** 2)

    made = task(dlrd.models.function(unequal, 1), MIXTURE)
    placed = first_rounds._at_modes(made, first_rounds.fresh(made, MIXTURE)).origin
    np.testing.assert_allclose(np.sort(np.asarray(placed.components.loc)[:, 0]), [-10, 10], atol=0.1)
    assert 0.01 < float(placed.weights.min()) < 0.1


@pytest.mark.parametrize("max_gradients", [30, 100, 1000])
def test_small_budgets_try_fewer_rates(task: Callable[..., Task], max_gradients: int) -> None:
    made = task(dlrd.models.function(two_modes, 1), MIXTURE, aim=Aim(max_gradients=max_gradients))
    begun = begin_rounds(made, MIXTURE)
    assert begun.latest is not None
    assert begun.num_gradients <= max_gradients
