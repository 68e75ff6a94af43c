"""What a thing of the user's is."""

import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from dlrd.command.data import Data
from dlrd.command.ends import UserError
from dlrd.command.kinds import as_model
from dlrd.command.targets import find
from dlrd.models import Model

Y = np.array([1.0, 2.0])


@pytest.fixture
def made(models: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The model of a name in the file of models."""
    monkeypatch.syspath_prepend(models.parent)

    def of(name: str, dim: int | None = None, data: Data | None = None) -> Model:
        return as_model(find(f"{models}:{name}")._replace(text=name), dim, data or {})

    return of


def value(model: Model, *draw: float) -> float:
    return float(model.values(jnp.array([draw]), None)[0])


def test_log_density(made: Any) -> None:
    model = made("normal", dim=2)
    assert (model.dim, value(model, 3.0, 4.0)) == (2, -0.5)


def test_data_of_a_log_density(made: Any) -> None:
    assert value(made("measured", dim=1, data={"y": Y}), 1.0) == -0.5
    assert value(made("measured", dim=1, data={"y": Y, "sd": 0.5}), 1.0) == -2.0
    assert value(made("measured", dim=1, data={"y": Y, "sd": 0.5, "more": Y}), 1.0) == -2.0


def test_whole_models_and_functions_that_return_them(made: Any) -> None:
    assert made("counted").dim == 2
    assert made("scales").dim == 40
    assert made("scales", data={"num": 5}).dim == 5


@pytest.fixture
def of_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The model of a name in a file with that source."""
    monkeypatch.setattr(sys, "path", sys.path.copy())

    def of(source: str, name: str, data: Data | None = None) -> Model:
        path = tmp_path / "model.py"
        path.write_text(source)
        return as_model(find(f"{path}:{name}")._replace(text=name), None, data or {})

    return of


NUMPYRO = """
def model(x, y=None):
    import numpyro
    import numpyro.distributions as dist

    spread = numpyro.sample("spread", dist.HalfNormal())
    with numpyro.plate("case", len(x)):
        numpyro.sample("y", dist.Normal(x, spread), obs=y)
"""


def test_numpyro_models(of_source: Any) -> None:
    """Whose names are the data's; also if the function imports the library by itself."""
    model = of_source(NUMPYRO, "model", {"y": Y, "x": Y})
    assert model.names == ("log spread",)
    assert model.observed_data["y"].tolist() == Y.tolist()


def test_numpyro_data_of_the_wrong_length_are_told(of_source: Any) -> None:
    with pytest.raises(UserError, match=r"'y' have shape \(3,\) where the model gives \(2,\)"):
        of_source(NUMPYRO, "model", {"y": np.ones(3), "x": Y})


PYMC = """
import pymc as pm

def made(y):
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mu"), observed=y)
    return model

model = made([1.0, 2.0])
"""


def test_pymc_models_and_functions_that_return_them(of_source: Any) -> None:
    whole, made = of_source(PYMC, "model"), of_source(PYMC, "made", {"y": Y})
    assert whole.names == made.names == ("mu",)
    assert value(whole, 0.5) == pytest.approx(value(made, 0.5))
    with pytest.raises(UserError, match="model is a whole model: leave --data out"):
        of_source(PYMC, "model", {"y": Y})


@pytest.mark.parametrize(
    ("name", "dim", "data", "told"),
    [
        (
            "num_schools",
            None,
            {},
            "num_schools must be a function, a PyMC model or a model of dlrd, got int 8",
        ),
        ("counted", 2, {}, "counted is a whole model: leave --dim out"),
        ("counted", None, {"y": Y}, "counted is a whole model: leave --data out"),
        (
            "normal",
            None,
            {},
            "normal needs z, but no --data are given; "
            "if it is the log density of a vector, say how long that is, as --dim 31",
        ),
        ("measured", 1, {}, "measured needs y, but no --data are given"),
        ("broken", None, {"x": Y}, "broken needs y, but --data gives x"),
        ("measured", 1, {"y": Y, "SD": 2}, "measured takes y, sd, but --data gives y, SD"),
        ("normal", 3, {"y": Y}, "normal takes no data, but --data gives y"),
        ("broken", None, {"y": Y}, "broken failed: ValueError: matmul: Input operand 1 has a mismatch"),
        (
            "normal",
            None,
            {"z": Y},
            "normal must be a NumPyro model or return a model, but returned ArrayImpl",
        ),
    ],
)
def test_what_does_not_fit_is_told(made: Any, name: str, dim: int | None, data: Data, told: str) -> None:
    with pytest.raises(UserError) as caught:
        made(name, dim, data)
    assert str(caught.value).startswith(told)


def test_the_line_that_fails_is_told(made: Any, models: Path) -> None:
    line = models.read_text(encoding="utf-8").splitlines().index("    return y @ np.ones(len(y) + 1)") + 1
    with pytest.raises(UserError, match=f", on line {line}$"):
        made("broken", data={"y": Y})
