"""NumPyro models of one function and other data."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import dlrd

pytestmark = pytest.mark.usefixtures("x64")
DRAWS = jnp.array([[0.3, -0.2], [1.0, 0.5]])


def regression(x: Any, y: Any, scale: float = 1.0) -> None:
    slope = numpyro.sample("slope", dist.Normal(0.0, scale))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(slope * x, sigma), obs=y)


def data(seed: int, num: int = 5) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.random.default_rng(seed).normal(size=(2, num))
    return x, y


def test_models_of_other_data_have_one_form() -> None:
    own = np.array([0, 0, 1, 1, 1])
    models = [dlrd.models.numpyro(regression, *data(seed)) for seed in (0, 1)]
    leaves, forms = zip(*map(jax.tree.flatten, models), strict=True)
    assert forms[0] == forms[1]
    assert hash(forms[0]) == hash(forms[1])
    assert models[0] != models[1]
    assert models[0] == dlrd.models.numpyro(regression, *data(0))
    # What is traced with the data of the one is right for the other.
    values = jax.jit(lambda leaves: forms[0].unflatten(leaves).values(DRAWS, None))
    for own, model, seed in zip(leaves, models, (0, 1), strict=True):
        np.testing.assert_array_equal(own[1], data(seed)[1])
        np.testing.assert_allclose(values(own), jax.jit(model.values)(DRAWS, None))
        expected = dist.Normal(-0.2 * data(seed)[0], np.exp(0.3)).log_prob(data(seed)[1])
        np.testing.assert_allclose(model.log_likelihood(DRAWS[:1])["y"][0], expected)
        np.testing.assert_array_equal(model.observed_data["y"], data(seed)[1])


@pytest.mark.parametrize(
    "other",
    [
        dlrd.models.numpyro(regression, *data(1, num=6)),
        dlrd.models.numpyro(regression, *data(1), scale=2.0),
        dlrd.models.numpyro(lambda x, y: regression(x, y), *data(1)),
    ],
    ids=["shape", "number", "function"],
)
def test_models_that_differ_in_more_have_forms_of_their_own(other: Any) -> None:
    assert jax.tree.structure(dlrd.models.numpyro(regression, *data(0))) != jax.tree.structure(other)


def test_a_model_that_looks_at_its_data_keeps_them() -> None:
    def groups(group: np.ndarray, y: np.ndarray) -> None:
        with numpyro.plate("group", int(group.max()) + 1):
            level = numpyro.sample("level", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(level[group], 1.0), obs=y)

    _, y = data(0)
    own = np.array([0, 0, 1, 1, 1])
    models = [dlrd.models.numpyro(groups, np.array(group), y) for group in (own, [0, 1, 1, 2, 2])]
    assert [model.dim for model in models] == [2, 3]
    assert jax.tree.leaves(models) == []
    expected = dist.Normal(0.0, 1.0).log_prob(
        jnp.concatenate([DRAWS[0], y - DRAWS[0][np.array([0, 0, 1, 1, 1])]])
    )
    np.testing.assert_allclose(models[0].values(DRAWS[:1], None)[0], expected.sum())
