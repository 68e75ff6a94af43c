"""What is seen in a NumPyro model, and what is said of one that cannot be fitted."""

import sys
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan
from numpyro.infer.reparam import LocScaleReparam

from dlrd.models.numpyro_sites import Sites, find_sites

Y = jnp.array([0.3, -1.2, 2.0])


def sites_of(model: Callable[[], Any]) -> Sites:
    return find_sites(model)[0]


def described_model() -> None:
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    share = numpyro.sample("share", dist.Beta(2.0, 2.0))
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(4)))
    numpyro.factor("penalty", -(mean**2))
    with numpyro.plate("column", 2, dim=-1), numpyro.plate("row", 3, dim=-2):
        cell = numpyro.sample("cell", dist.Normal(mean, scale))
        numpyro.deterministic("pairs", jnp.stack([cell, 2 * cell], axis=-1))
        numpyro.sample(
            "y", dist.Normal(cell[..., None], share * jnp.ones(5)).to_event(1), obs=jnp.ones((3, 2, 5))
        )
    numpyro.deterministic("largest", weights.max())


def test_sites_are_sorted_by_what_they_are() -> None:
    sites, values = find_sites(described_model)
    assert sites.latent == {"mean": None, "scale": "log", "share": "logit", "weights": "free", "cell": None}
    assert sites.observed == ("y",)
    assert sites.deterministic == ("pairs", "largest")
    assert sites.variables == ["mean", "scale", "share", "weights", "cell", "pairs", "largest"]
    assert sites.discrete == ()
    assert values.params == {}
    np.testing.assert_array_equal(values.observed["y"], np.ones((3, 2, 5)))


def test_axes_are_those_of_plates() -> None:
    sites = sites_of(described_model)
    assert sites.dims == {
        "cell": ("row", "column"),
        "pairs": ("row", "column", "pairs_dim_2"),
        "y": ("row", "column", "y_dim_2"),
    }
    assert {name: labels.tolist() for name, labels in sites.coords.items()} == {
        "row": [0, 1, 2],
        "column": [0, 1],
    }


def series() -> None:
    def transition(state: Any, seen: Any) -> tuple[Any, None]:
        with numpyro.plate("unit", 2):
            state = numpyro.sample("state", dist.Normal(state, numpyro.sample("step", dist.HalfNormal(1.0))))
            numpyro.sample("y", dist.Normal(state, 1.0), obs=seen)
        return state, None

    scan(transition, jnp.zeros(2), jnp.ones((4, 2)))


def test_a_scan_adds_an_axis_before_those_of_plates() -> None:
    sites, values = find_sites(series)
    assert sites.dims["state"] == ("state_dim_0", "unit")
    assert sites.dims["y"] == ("y_dim_0", "unit")
    assert values.observed["y"].shape == (4, 2)
    assert sites.decentrings == {}  # reparam would not find the sites there


def hierarchy() -> None:
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    numpyro.sample("other", dist.Normal(jnp.zeros(3), 2.0).to_event(1))
    with numpyro.plate("group", 3):
        effect = numpyro.sample("effect", dist.Normal(0.0, scale))
        numpyro.sample("heavy", dist.StudentT(3.0, 0.0, scale))
        numpyro.sample("positive", dist.HalfNormal(scale))
        numpyro.sample("y", dist.Normal(effect, 1.0), obs=Y)


def test_hierarchies_that_are_centred_are_seen() -> None:
    assert sites_of(hierarchy).decentrings == {
        "effect": "LocScaleReparam(0)",
        "heavy": "LocScaleReparam(0, shape_params=['df'])",
    }


def test_the_decentrings_are_what_numpyro_takes() -> None:
    config = {name: eval(code) for name, code in sites_of(hierarchy).decentrings.items()}
    assert isinstance(config["effect"], LocScaleReparam)
    decentred = numpyro.handlers.reparam(hierarchy, config=config)
    assert sites_of(decentred).decentrings == {}
    assert set(sites_of(decentred).latent) >= {"effect_decentered", "heavy_decentered"}


def with_state() -> Callable[[], Any]:
    """A model that remembers how often it was called."""
    sizes = iter(range(2, 10))
    return lambda: numpyro.sample("x", dist.Normal(0.0, 1.0).expand([next(sizes)]))


def with_more_sites() -> Callable[[], Any]:
    count = iter(range(10))
    return lambda: [numpyro.sample(f"x{i}", dist.Normal(0.0, 1.0)) for i in range(1 + next(count))]


def random_length() -> None:
    length = numpyro.sample("length", dist.HalfNormal(5.0))
    numpyro.sample("x", dist.Normal(0.0, 1.0).expand([int(length) + 1]))


def decision() -> None:
    if numpyro.sample("x", dist.Normal(0.0, 1.0)) > 0:
        numpyro.sample("z", dist.Normal(0.0, 1.0))


def minibatch() -> None:
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    with numpyro.plate("row", 3, subsample_size=2) as rows:
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=Y[rows])


def wrong_length() -> None:
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0).expand([4]))
    numpyro.sample("y", dist.Normal(mean, 1.0), obs=Y)


def wrong_covariates() -> None:
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0).expand([4]))
    numpyro.sample("y", dist.Normal(slope * jnp.ones((3, 5)), 1.0), obs=Y)


def wrong_plate() -> None:
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    with numpyro.plate("row", 4):
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=Y)


def count() -> None:
    numpyro.sample("n", dist.Poisson(3.0))


def sphere() -> None:
    numpyro.sample("direction", dist.ProjectedNormal(jnp.ones(3)))


def only_data() -> None:
    numpyro.sample("y", dist.Normal(0.0, 1.0), obs=Y)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (with_state(), r"'x' has shape \(2,\) in one run and \(3,\) in another"),
        (with_more_sites(), "'x1' is in one and not in another"),
        (random_length, "must run the same way.* does not after site 'length': ConcretizationTypeError"),
        (decision, "must run the same way.* does not after site 'x': TracerBoolConversionError"),
        (minibatch, "'row' takes 2 of 3 at a time: leave out its subsample_size"),
        (wrong_length, r"those of 'y' have shape \(3,\) where the model gives \(4,\)"),
        (wrong_plate, r"those of 'y' have shape \(3,\) where the model gives \(4,\)"),
        (wrong_covariates, "fails after site 'slope': ValueError: Incompatible shapes for broadcasting"),
        (count, "'n' is a Poisson: sum over it by hand, or hand over its data if it has any"),
        (sphere, "fails: ValueError: Continuous inference cannot handle spherical sample site 'direction'"),
        (only_data, "must have a continuous latent site to fit, and it has none"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_one_sentence_says_what_is_wrong(model: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        find_sites(model)
    assert "\n" not in str(caught.value)
    assert getattr(caught.value, "__notes__", []) == []


def test_enumeration_without_funsor_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "funsor", None)
    with pytest.raises(
        ImportError, match=r"site 'kind' is summed over by NumPyro with funsor.*pip install funsor"
    ):
        find_sites(lambda: numpyro.sample("kind", dist.Bernoulli(0.5)))
