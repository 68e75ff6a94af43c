"""PyMC models of the benchmark: all can be made; some against PyMC's NUTS."""

import jax.numpy as jnp
import numpy as np
import pytest

from dlrd.bench.models.case import Case
from dlrd.bench.models.compare import TARGET, row_of
from dlrd.bench.models.pymc_models import CASES


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_densities_are_finite(case: Case) -> None:
    model, _ = case.make()
    assert np.isfinite(model.values(jnp.zeros((2, model.dim)), None)).all()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["regression", "ordinal"])
def test_answers_are_those_of_nuts(name: str) -> None:
    (case,) = [case for case in CASES if case.name == name]
    row = row_of(case, 0)
    assert row["is_whole"]
    assert row["mean_error"] <= TARGET
