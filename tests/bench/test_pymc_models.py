"""PyMC models of the benchmark: all can be made; some against PyMC's NUTS."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dlrd.bench import adapter_cost
from dlrd.bench.models.case import Case
from dlrd.bench.models.compare import TARGET, row_of
from dlrd.bench.models.pymc_models import CASES
from dlrd.models import pymc as pymc_model


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_densities_are_finite(case: Case) -> None:
    model, _ = case.make()
    assert np.isfinite(model.values(jnp.zeros((2, model.dim)), None)).all()


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_the_adapter_is_timed_against_the_same_density() -> None:
    """Up to a constant, of which PyTensor keeps fewer digits."""
    data = adapter_cost.made_data()
    model = pymc_model(adapter_cost.hierarchy_in_pymc(*data))
    draws = jax.random.normal(jax.random.key(0), (3, adapter_cost.NUM_GROUPS + 4))
    expected = jax.vmap(adapter_cost.by_hand(*data, in_order=adapter_cost.pymc_order))(draws)
    found = np.asarray(model.values(draws, None))
    np.testing.assert_allclose(np.diff(found), np.diff(expected), rtol=1e-12)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["regression", "ordinal"])
def test_answers_are_those_of_nuts(name: str) -> None:
    (case,) = [case for case in CASES if case.name == name]
    row = row_of(case, 0)
    assert row["is_whole"]
    assert row["mean_error"] <= TARGET
