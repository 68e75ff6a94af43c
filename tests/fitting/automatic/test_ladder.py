"""`dlrd.fit` without a family: which normals are fitted, from where, how far, and which is kept."""

import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dlrd
from dlrd.families.curvature import MAX_WHOLE
from dlrd.fitting.automatic import fit as fit_module
from dlrd.fitting.automatic import ladder
from dlrd.fitting.automatic.ladder import MAX_SMALL, MIN_GRADIENTS, MIN_GRADIENTS_PER_DIM, ROUGH, climb, rungs
from dlrd.fitting.automatic.plan import Plan, default_tolerance
from dlrd.fitting.history import Recorder
from dlrd.fitting.outcome import Outcome
from dlrd.fitting.request import Aim, Request, Sampling, Stepping, Watching
from dlrd.fitting.verdict import Verdict

MEAN_FIELD, FULL_RANK, SPARSE, LOW_RANK = (
    dlrd.MeanFieldNormal,
    dlrd.FullRankNormal,
    dlrd.SparseNormal,
    dlrd.LowRankNormal,
)
COST = 1000
"""Gradients of each rung made by hand."""


@pytest.mark.parametrize(
    ("dim", "kinds"),
    [
        (1, [FULL_RANK]),
        (MAX_SMALL, [FULL_RANK]),
        (MAX_SMALL + 1, [MEAN_FIELD, FULL_RANK]),
        (MAX_WHOLE, [MEAN_FIELD, FULL_RANK]),
        (MAX_WHOLE + 1, [MEAN_FIELD, SPARSE, LOW_RANK]),
    ],
)
def test_rungs_by_dimension(dim: int, kinds: list[Any]) -> None:
    assert rungs(dim) == kinds


@dataclasses.dataclass
class Climbed:
    """What the ladder asked for, rung by rung, and what it returned."""

    starts: list[Any]
    requests: list[Request]
    plans: list[Plan | None]
    fit: Any = None

    @property
    def aims(self) -> list[Aim]:
        assert all(request.aim is not None for request in self.requests)
        return [request.aim for request in self.requests if request.aim is not None]


@pytest.fixture
def climbed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Climbed]:
    """Climbs with fits made by hand: of these ELBOs, outcomes and costs."""

    def make(
        dim: int,
        elbos: list[float],
        outcomes: list[Outcome] | None = None,
        answers: list[Any] | None = None,
        aim: Aim | None = None,
        **watching: Any,
    ) -> Climbed:
        found = Climbed([], [], [])

        def fitted(model: Any, start: Any, key: Any, request: Request, plan: Plan | None) -> dlrd.Fit:
            number = len(found.starts)
            found.starts.append(start)
            found.requests.append(request)
            found.plans.append(plan)
            verdict = Verdict(
                tolerance=0.01,
                gap=0.0,
                gap_error=0.0,
                elbo=elbos[number],
                elbo_error=0.1,
                tail_shape=0.1 * number,
                tail_shape_error=0.05,
                is_certain=True,
                gradients={"start": COST // 4, "steps": COST // 2 + number, "certificates": COST // 4},
                warnings=[f"of rung {number}"],
            )
            return dlrd.Fit(
                family=start if answers is None else answers[number],
                history=Recorder(every=1).history(),
                outcome=Outcome.CERTIFIED if outcomes is None else outcomes[number],
                num_steps=number,
                num_draws=8,
                seconds=10.0 + number,
                names=(),
                verdict=verdict,
            )

        monkeypatch.setattr(ladder, "fit_automatically", fitted)
        model = dlrd.models.function(lambda z: -0.5 * jnp.sum(z**2), dim)
        sampling = Sampling(num_draws=6)
        request = Request(aim or Aim(), Stepping(), sampling, Watching(**({"progress": False} | watching)))
        found.fit = climb(model, jax.random.key(0), request)
        return found

    return make


def kinds(found: Climbed) -> list[type]:
    return [type(start) for start in found.starts]


def test_one_rung_is_a_fit_like_any_other(climbed: Callable[..., Climbed]) -> None:
    found = climbed(3, [-1.0])
    (start,) = found.starts
    np.testing.assert_array_equal(start.mean, np.zeros(3))
    np.testing.assert_array_equal(start.covariance, np.eye(3))
    assert found.aims == [Aim(tolerance=default_tolerance(3))]
    assert found.plans == [None]


def test_each_starts_from_the_last_answer(climbed: Callable[..., Climbed]) -> None:
    """With its means and standard deviations; modes are not looked for again."""
    mean, std = np.linspace(-1, 1, 60), np.linspace(0.5, 2, 60)
    answer = dlrd.MeanFieldNormal(mean, np.log(std))
    found = climbed(60, [-2.0, -1.0], answers=[answer, FULL_RANK.standard(60)], aim=Aim(starts=5))
    assert kinds(found) == [MEAN_FIELD, FULL_RANK]
    first, second = found.starts
    np.testing.assert_array_equal(first.mean, np.zeros(60))
    np.testing.assert_allclose(second.mean, mean, rtol=1e-6)
    np.testing.assert_allclose(second.covariance, np.diag(std**2), rtol=1e-6)
    assert found.plans == [None, Plan(has_modes=False, num_starts=5, num_draws=6)]


def test_each_starts_from_the_last_answer_in_many_dimensions(climbed: Callable[..., Climbed]) -> None:
    dim = MAX_WHOLE + 1
    mean, std = np.linspace(-1, 1, dim), np.linspace(0.5, 2, dim)
    sparse = SPARSE.from_precision(2 * mean, np.diag(std**-2 / 4))
    answers = [dlrd.MeanFieldNormal(mean, np.log(std)), sparse, LOW_RANK.standard(dim)]
    found = climbed(dim, [-3.0, -2.0, -1.0], answers=answers)
    assert kinds(found) == [MEAN_FIELD, SPARSE, LOW_RANK]
    _, second, third = found.starts
    np.testing.assert_allclose(second.mean, mean, rtol=1e-6)
    np.testing.assert_allclose(second.std, std, rtol=1e-6)
    np.testing.assert_allclose(third.mean, 2 * mean, rtol=1e-6)
    # Beside a small random factor, of a hundredth of each standard deviation and ten columns.
    factor = np.sum(np.asarray(LOW_RANK.standard(dim).factor) ** 2, axis=1)
    np.testing.assert_allclose(third.std, 2 * std * np.sqrt(1 + factor), rtol=1e-6)


def test_first_of_several_is_rough(climbed: Callable[..., Climbed]) -> None:
    for tolerance in (None, 0.5):
        found = climbed(60, [-2.0, -1.0], aim=Aim(tolerance=tolerance))
        own = tolerance or default_tolerance(60)
        assert [aim.tolerance for aim in found.aims] == [ROUGH * own, own]


def test_ends_where_it_no_longer_pays(climbed: Callable[..., Climbed]) -> None:
    """By no more than the tolerance, which the third rung of many dimensions is then spared."""
    dim, wide = MAX_WHOLE + 1, dlrd.MeanFieldNormal.standard(MAX_WHOLE + 1)
    for gain, num in ((0.4, 2), (0.6, 3)):
        found = climbed(dim, [-2.0, -2.0 + gain, 0.0], answers=[wide] * 3, aim=Aim(tolerance=0.5))
        assert len(found.starts) == num


def test_ends_with_the_pattern_of_the_model(climbed: Callable[..., Climbed]) -> None:
    """With it, no other normal is better; without it, one of low rank may be, though nothing was gained."""
    dim = MAX_WHOLE + 1
    apart = SPARSE.standard(dim)
    matrix = np.eye(dim)
    matrix[0, 1] = matrix[1, 0] = 0.5
    coupled = SPARSE.from_precision(np.zeros(dim), matrix)
    wide, low = MEAN_FIELD.standard(dim), LOW_RANK.standard(dim)
    assert kinds(climbed(dim, [-3.0, -1.0, 0.0], answers=[wide, coupled, low])) == [MEAN_FIELD, SPARSE]
    without = climbed(dim, [-3.0, -3.0, 0.0], answers=[wide, apart, low])
    assert kinds(without) == [MEAN_FIELD, SPARSE, LOW_RANK]


@pytest.mark.parametrize(("elbos", "kept"), [([-2.0, -1.0], 1), ([-1.0, -2.0], 0)])
def test_highest_elbo_is_kept_and_tells_of_the_others(
    climbed: Callable[..., Climbed], elbos: list[float], kept: int
) -> None:
    found = climbed(60, elbos)
    assert found.fit.family is found.starts[kept]
    assert (found.fit.elbo, found.fit.num_steps) == (elbos[kept], kept)
    verdict = found.fit.verdict
    assert verdict is not None
    assert verdict.warnings == [f"of rung {kept}"]
    assert verdict.gradients == {"start": 500, "steps": 1001, "certificates": 500}
    assert verdict.num_gradients == sum(rung.num_gradients for rung in verdict.rungs)
    assert [rung._replace(seconds=0) for rung in verdict.rungs] == [
        ("MeanFieldNormal", elbos[0], 0.0, COST, 0),
        ("FullRankNormal", elbos[1], 0.1, COST + 1, 0),
    ]
    assert [rung.seconds for rung in verdict.rungs] == [10.0, 11.0]


@pytest.mark.parametrize(
    ("elbo", "outcome", "kept"),
    [(-1.2, Outcome.CERTIFIED, 1), (-1.4, Outcome.CERTIFIED, 0), (-1.2, Outcome.BUDGET, 0)],
    ids=["within the errors", "surely lower", "not arrived"],
)
def test_richer_one_is_kept_unless_it_is_surely_lower(
    climbed: Callable[..., Climbed], elbo: float, outcome: Outcome, kept: int
) -> None:
    """Twice the error of a difference is 0.28; the first one is only certified to a wide tolerance."""
    found = climbed(60, [-1.0, elbo], [Outcome.CERTIFIED, outcome])
    assert found.fit.family is found.starts[kept]


def test_budget_is_shared(climbed: Callable[..., Climbed]) -> None:
    """The first rung may spend half of it, each other one what those before have left."""
    dim = MAX_WHOLE + 1
    found = climbed(dim, [-3.0, -2.0, -1.0], aim=Aim(max_gradients=20_000))
    assert [aim.max_gradients for aim in found.aims] == [10_000, 20_000 - COST, 20_000 - 2 * COST - 1]


@pytest.mark.parametrize(("less", "num"), [(0, 2), (1, 1)])
def test_no_rung_for_too_little_of_the_budget(climbed: Callable[..., Climbed], less: int, num: int) -> None:
    left = MIN_GRADIENTS + 60 * MIN_GRADIENTS_PER_DIM - less
    assert len(climbed(60, [-2.0, -1.0], aim=Aim(max_gradients=COST + left)).starts) == num


@pytest.mark.parametrize("outcome", [Outcome.INTERRUPTED, Outcome.DIVERGED])
def test_nothing_is_built_on_what_has_no_end(climbed: Callable[..., Climbed], outcome: Outcome) -> None:
    found = climbed(60, [-2.0, -1.0], [outcome, Outcome.CERTIFIED])
    assert len(found.starts) == 1
    assert found.fit.outcome is outcome


def test_budget_and_agreement_are_built_on(climbed: Callable[..., Climbed]) -> None:
    for outcome in (Outcome.BUDGET, Outcome.AGREED):
        found = climbed(60, [-2.0, -1.0], [outcome, Outcome.CERTIFIED])
        assert len(found.starts) == 2
        assert found.fit.outcome is Outcome.CERTIFIED


def test_interrupted_on_the_way_is_told_whatever_is_kept(climbed: Callable[..., Climbed]) -> None:
    for elbos, kept in (([-2.0, -3.0], 0), ([-2.0, -1.0], 1)):
        found = climbed(60, elbos, [Outcome.CERTIFIED, Outcome.INTERRUPTED])
        assert found.fit.family is found.starts[kept]
        assert found.fit.outcome is Outcome.INTERRUPTED


def test_each_rung_has_a_folder_of_its_own(climbed: Callable[..., Climbed]) -> None:
    found = climbed(60, [-2.0, -1.0], checkpoint=pathlib.Path("runs"))
    folders = [request.watching.checkpoint for request in found.requests]
    names = "MeanFieldNormal", "FullRankNormal, tolerance 0.012"
    assert folders == [pathlib.Path("runs") / name for name in names]
    alone = climbed(60, [-2.0, -1.0])
    assert [request.watching.checkpoint for request in alone.requests] == [None, None]


NUM_EFFECTS = 58
OBSERVED = np.random.default_rng(0).normal(1.0, 1.5, size=NUM_EFFECTS)


def hierarchy(z: jax.Array) -> jax.Array:
    """Effects that are known to half a unit, around a mean and with a spread of their own."""
    mean, log_spread, effects = z[0], z[1], z[2:]
    prior = -0.5 * (mean / 5) ** 2 - 0.5 * log_spread**2 - NUM_EFFECTS * log_spread
    level = -0.5 * jnp.sum((effects - mean) ** 2) * jnp.exp(-2 * log_spread)
    return prior + level - 2 * jnp.sum((jnp.asarray(OBSERVED, z.dtype) - effects) ** 2)


MODEL = dlrd.models.function(hierarchy, 2 + NUM_EFFECTS)
BUDGET = 20_000


def climbed_for_real(**changed: Any) -> dlrd.Fit:
    return dlrd.fit(MODEL, **({"key": 0, "progress": False, "max_gradients": BUDGET} | changed))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[dlrd.Fit, pathlib.Path]:
    """A fit, and the folder of its checkpoints."""
    folder = tmp_path_factory.mktemp("whole")
    return climbed_for_real(checkpoint=folder), folder


def without_times(fit: dlrd.Fit) -> dlrd.Fit:
    assert fit.verdict is not None
    rungs = [rung._replace(seconds=0.0) for rung in fit.verdict.rungs]
    return dataclasses.replace(fit, verdict=dataclasses.replace(fit.verdict, rungs=rungs))


SameFit = Callable[[dlrd.Fit, dlrd.Fit], None]


def test_hierarchy_is_fitted_by_the_full_rank_normal(whole: tuple[dlrd.Fit, pathlib.Path]) -> None:
    fit, _ = whole
    verdict = fit.verdict
    assert verdict is not None
    assert isinstance(fit.family, FULL_RANK)
    assert fit.outcome is Outcome.CERTIFIED
    assert verdict.tolerance == default_tolerance(2 + NUM_EFFECTS)
    assert [rung.family for rung in verdict.rungs] == ["MeanFieldNormal", "FullRankNormal"]
    assert verdict.rungs[0].elbo < verdict.rungs[1].elbo == fit.elbo
    assert verdict.num_gradients == sum(rung.num_gradients for rung in verdict.rungs) <= BUDGET
    assert all(0 < rung.seconds < fit.seconds for rung in verdict.rungs)


def test_same_call_again_gives_the_same(
    whole: tuple[dlrd.Fit, pathlib.Path], assert_same_fit: SameFit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From its checkpoints, without another step."""
    fit, folder = whole
    monkeypatch.setattr(fit_module, "begin", None)
    monkeypatch.setattr(fit_module, "run_until_sure", None)
    assert_same_fit(without_times(climbed_for_real(checkpoint=folder)), without_times(fit))


def test_resumed_on_the_second_rung_ends_like_one_that_was_never_interrupted(
    whole: tuple[dlrd.Fit, pathlib.Path],
    assert_same_fit: SameFit,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: pathlib.Path,
) -> None:
    with monkeypatch.context() as patched:
        interrupted_on_rung(patched, 2, "run_until_sure")
        first = climbed_for_real(checkpoint=tmp_path)
    assert first.outcome is Outcome.INTERRUPTED
    assert first.verdict is not None
    assert len(first.verdict.rungs) == 2
    assert_same_fit(without_times(climbed_for_real(checkpoint=tmp_path)), without_times(whole[0]))


def test_interrupted_while_the_second_rung_looks_for_its_start(
    whole: tuple[dlrd.Fit, pathlib.Path],
    assert_same_fit: SameFit,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: pathlib.Path,
) -> None:
    """The first rung's answer is what there is; the next call goes on from there."""
    with monkeypatch.context() as patched:
        interrupted_on_rung(patched, 2, "begin")
        first = climbed_for_real(checkpoint=tmp_path)
    assert first.outcome is Outcome.INTERRUPTED
    assert isinstance(first.family, MEAN_FIELD)
    assert first.verdict is not None
    assert whole[0].verdict is not None
    assert first.elbo == whole[0].verdict.rungs[0].elbo
    assert_same_fit(without_times(climbed_for_real(checkpoint=tmp_path)), without_times(whole[0]))


def test_stricter_tolerance_goes_on_from_the_checkpoints(tmp_path: pathlib.Path) -> None:
    """As it does where a family is given."""
    rough = climbed_for_real(tolerance=0.1, checkpoint=tmp_path)
    fine = climbed_for_real(tolerance=1e-5, checkpoint=tmp_path, max_gradients=30_000)
    assert rough.num_steps < fine.num_steps


def interrupted_on_rung(monkeypatch: pytest.MonkeyPatch, number: int, name: str) -> None:
    """Ctrl-C as this function of the rung is called."""
    original, calls = getattr(fit_module, name), []

    def interrupted(*args: Any) -> Any:
        calls.append(name)
        if len(calls) == number:
            raise KeyboardInterrupt
        return original(*args)

    monkeypatch.setattr(fit_module, name, interrupted)


def test_many_fits_climb_each_on_its_own(
    whole: tuple[dlrd.Fit, pathlib.Path], assert_same_fit: SameFit
) -> None:
    """The first with the same key as the fit alone."""
    first, second = dlrd.fit_many(MODEL, keys=[0, 1], progress=False, max_gradients=BUDGET)
    assert_same_fit(without_times(first), without_times(whole[0]))
    assert second.outcome is Outcome.CERTIFIED
    assert abs(second.elbo - first.elbo) < 4 * np.hypot(
        first.elbo_error, second.elbo_error
    ) + 2 * default_tolerance(60)


def test_fit_of_few_dimensions_has_one_rung() -> None:
    fit = dlrd.fit(dlrd.models.function(lambda z: -0.5 * jnp.sum(z**2), 2), key=0, progress=False)
    assert fit.verdict is not None
    (rung,) = fit.verdict.rungs
    assert (rung.family, rung.elbo) == ("FullRankNormal", fit.elbo)
    assert rung.num_gradients == fit.verdict.num_gradients


def test_family_that_is_given_is_the_only_one() -> None:
    fit = dlrd.fit(MODEL, MEAN_FIELD.standard(60), key=0, progress=False, max_gradients=BUDGET)
    assert fit.verdict is not None
    assert fit.verdict.rungs == []
