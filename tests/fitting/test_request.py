"""What `dlrd.fit` is asked to do: nothing given may be ignored, and each refusal is one sentence."""

from pathlib import Path
from typing import Any

import optax
import pytest

import dlrd
from dlrd.fitting.request import Aim, Request, Sampling, Stepping, Watching, checked_request

OPTIMIZER = optax.adam(1e-2)
NO_AIM = {"tolerance": None, "max_gradients": None, "max_seconds": None, "starts": None}


def requested(
    aim: dict[str, Any] | None = None,
    num_draws: Any = 8,
    checkpoint: str | Path | None = None,
    **stepping: Any,
) -> Request:
    sampling = Sampling(num_draws, dlrd.natural_gradient)
    return checked_request(NO_AIM | (aim or {}), Stepping(**stepping), sampling, checkpoint, False)


def explicit(**changed: Any) -> Request:
    return requested(**({"optimizer": OPTIMIZER, "steps": 10} | changed))


def test_without_an_optimizer_there_is_an_aim() -> None:
    request = requested()
    # What suits the dimension, which is not known here.
    assert request.aim == Aim(tolerance=None, max_gradients=100_000, starts=16)
    assert request.stepping == Stepping()
    assert request.sampling == Sampling(8, dlrd.natural_gradient)
    assert request.watching == Watching(None, False)


def test_budgets_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match=r"max_gradients must be at least 30, .* got 29"):
        requested({"max_gradients": 29})
    with pytest.raises(ValueError, match="max_seconds must be a positive number, got int 0"):
        requested({"max_seconds": 0})
    assert requested({"max_gradients": 30, "max_seconds": 2.5}).aim == Aim(None, 30, 2.5)


def test_what_is_given_of_the_aim_is_taken() -> None:
    aim = requested({"tolerance": 1, "starts": 3}).aim
    assert aim == Aim(tolerance=1.0, max_gradients=100_000, starts=3)
    assert isinstance(aim.tolerance, float)


def test_with_an_optimizer_there_is_none() -> None:
    request = explicit(average="tail", draws="sobol")
    assert request.aim is None
    assert request.stepping == Stepping(OPTIMIZER, steps=10, average="tail", draws="sobol")


def test_factory_goes_with_learning_rates() -> None:
    assert explicit(optimizer=optax.adam, learning_rates=[0.1]).stepping.optimizer is optax.adam


@pytest.mark.parametrize("name", NO_AIM)
def test_aims_beside_an_optimizer_are_refused(name: str) -> None:
    message = f"^{name} must be given only without optimizer, got int 3; a fit with optimizer takes steps$"
    with pytest.raises(ValueError, match=message):
        explicit(aim={name: 3})


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("steps", 10, "int 10"),
        ("draws", "sobol", "str 'sobol'"),
        ("average", "tail", "str 'tail'"),
        ("monitor", dict, "type .*"),
        ("monitor_steps", [1, 2], r"list \[1, 2\]"),
        ("learning_rates", [0.1], r"list \[0.1\]"),
    ],
)
def test_stepping_without_an_optimizer_is_refused(name: str, value: Any, shown: str) -> None:
    message = (
        f"^{name} must be given only together with optimizer, got {shown}; "
        "an automatic fit takes tolerance and max_gradients$"
    )
    with pytest.raises(ValueError, match=message):
        requested(**{name: value})


@pytest.mark.parametrize(
    ("aim", "message"),
    [
        ({"tolerance": 0.0}, r"^tolerance must be a positive number, got float 0\.0$"),
        ({"tolerance": -1}, "^tolerance must be a positive number, got int -1$"),
        ({"tolerance": float("nan")}, "^tolerance must be a positive number, got float nan$"),
        ({"tolerance": float("inf")}, "^tolerance must be a positive number, got float inf$"),
        ({"tolerance": True}, "^tolerance must be a positive number, got bool True$"),
        ({"tolerance": "small"}, "^tolerance must be a positive number, got str 'small'$"),
        ({"starts": 0}, "^starts must be a whole number of at least 1, got int 0$"),
        ({"starts": 1.5}, r"^starts must be a whole number of at least 1, got float 1\.5$"),
        ({"max_gradients": 0}, "^max_gradients must be a whole number of at least 1, got int 0$"),
    ],
)
def test_aims_out_of_range_are_refused(aim: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        requested(aim)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"steps": None}, "^steps must be given together with optimizer, got None$"),
        ({"steps": 0}, "^steps must be a whole number of at least 1, got int 0$"),
        ({"average": "head"}, "^average must be None or \"tail\", got 'head'$"),
        ({"optimizer": 1e-2}, r"^optimizer must be an optax transformation, .* got float 0\.01$"),
        ({"optimizer": optax.adam}, "^optimizer must be an optax transformation, .* got function"),
        ({"learning_rates": [0.1]}, "^optimizer must be a function of the learning rate where"),
        (
            {"learning_rates": [0.1], "optimizer": 0.1},
            "^optimizer must be a function of the learning rate where",
        ),
    ],
)
def test_steppings_that_make_no_sense_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        explicit(**changed)


@pytest.mark.parametrize("make", [requested, explicit])
@pytest.mark.parametrize(("num_draws", "shown"), [(0, "int 0"), (0.5, "float 0.5")])
def test_draws_are_counted_for_both_kinds(make: Any, num_draws: Any, shown: str) -> None:
    with pytest.raises(ValueError, match=f"^num_draws must be a whole number of at least 1, got {shown}$"):
        make(num_draws=num_draws)


def test_each_of_many_fits_has_a_folder_of_its_own() -> None:
    request = requested(checkpoint="runs")
    assert request.watching.checkpoint == Path("runs")
    assert request.in_folder("3").watching == Watching(Path("runs") / "3", False)
    assert request.in_folder("3")._replace(watching=request.watching) == request


def test_without_a_checkpoint_there_is_no_folder() -> None:
    assert requested().in_folder("3") == requested()
