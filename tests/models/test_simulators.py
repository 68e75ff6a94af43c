"""What people write down: commands, servers, arguments that do not go together, logs that go on."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlrd
from dlrd.models import priors, simulators

PRIOR: dict[str, Any] = {"a": priors.normal(), "b": priors.normal(0, 1, (2,))}
DATA = np.array([1.0, 2.0, 3.0])


def test_a_command_gets_the_parameters_by_their_names() -> None:
    run = dlrd.models.command(["echo", "$a", "$b_0", "$b_1"], read="stdout")
    model = dlrd.models.simulator(run, PRIOR, DATA, 1.0, workers=1, gradient="none")
    outputs = model.predictions(np.array([[1.5, -2.0, 0.25]]), dlrd.fitting.inputs.as_key(0))["outputs"]
    np.testing.assert_array_equal(outputs, [[1.5, -2.0, 0.25]])
    model.close()


def test_the_log_goes_on_in_another_model(tmp_path: Path) -> None:
    made = []
    for run in (lambda x: 2 * x, lambda x: 1 / 0):  # the second is not asked
        model = dlrd.models.simulator(run, PRIOR, DATA, 1.0, workers=1, log=tmp_path / "runs.jsonl")
        draws = np.arange(6.0).reshape(2, 3)
        made.append(model.predictions(draws, dlrd.fitting.inputs.as_key(0))["outputs"])
        model.close()
    np.testing.assert_array_equal(*made)
    with pytest.raises(ValueError, match="is the log of another problem"):
        dlrd.models.simulator(np.sin, PRIOR, DATA + 1, 1.0, log=tmp_path / "runs.jsonl")


def test_importing_it_does_not_need_dask() -> None:
    assert simulators.umbridge.__name__ == "umbridge"
    assert dlrd.models.simulator is simulators.simulator
    assert dlrd.models.priors is priors


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dlrd.models.simulator(3, PRIOR), "run must be a function of a vector of parameters"),
        (lambda: dlrd.models.simulator(np.sin, {"a": 1.0}), "a must have a prior, as dlrd.models.priors.nor"),
        (lambda: dlrd.models.simulator(np.sin, PRIOR, DATA), "noise must be given together with data"),
        (lambda: dlrd.models.simulator(np.sin, PRIOR, noise=1.0), "noise must be given only together with"),
        (lambda: dlrd.models.simulator(np.sin, PRIOR, DATA, -1.0), "noise must be positive and finite"),
        (lambda: dlrd.models.simulator(np.sin, PRIOR, DATA, [1, 2]), r"for each of data of shape \(3,\)"),
        (lambda: dlrd.models.simulator(np.sin, PRIOR, DATA * np.nan, 1), "data must be finite"),
        (
            lambda: dlrd.models.simulator(np.sin, PRIOR, DATA, {"a": priors.half_normal()}),
            "the noise must have a name of its own, got a twice",
        ),
        (
            lambda: dlrd.models.simulator(np.sin, PRIOR, DATA, likelihood=lambda u, v: 0.0),
            "data must be given only without likelihood",
        ),
        (lambda: dlrd.models.simulator(np.sin, PRIOR, gradient="adjoint"), 'gradient must be "given", "surr'),
        (lambda: dlrd.models.simulator(np.sin, PRIOR, step=0.0), "step must be above 0, got 0.0"),
        (lambda: dlrd.models.simulator(np.sin, PRIOR, max_failed=1.5), "max_failed must be between 0 and 1"),
        (
            lambda: dlrd.models.simulator(np.sin, PRIOR, workers=0),
            "workers must be a whole number of at least",
        ),
    ],
    ids=range(13),
)
def test_says_what_is_wrong(call: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        call()
