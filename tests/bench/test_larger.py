"""The six larger posteriors, on made-up data: each log density against the model as NumPyro has it."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.flatten_util import ravel_pytree
from numpyro.infer.util import initialize_model

from dlrd.bench.posteriors.larger import LARGER, larger_posteriors
from dlrd.bench.posteriors.models import Posterior

NUM_POINTS = 5
Data = dict[str, Any]


def made_up_data() -> dict[str, Data]:
    """Data of the same form as in the files, with numbers of no meaning."""
    rng = np.random.default_rng(0)

    def whole(low: int, high: int, *shape: int) -> Any:
        return rng.integers(low, high, shape, endpoint=True).tolist()

    def normal(num: int) -> list[float]:
        return rng.normal(size=num).tolist()

    return {
        "seeds_centered": {"I": 6, "n": whole(0, 9, 6), "N": whole(9, 20, 6), "x1": whole(0, 1, 6)}
        | {"x2": whole(0, 1, 6)},
        "glmm_poisson": {"n": 8, "year": normal(8), "C": [0, 1, *whole(2, 200, 6)]},
        # The rat with a single row has a line of its own all the same.
        "rats": {"N": 4, "Npts": 12, "rat": [1, 4, *whole(1, 3, 10)], "x": whole(8, 36, 12), "xbar": 22}
        | {"y": whole(130, 350, 12)},
        # The third county has no rows.
        "radon_mn-hi_centered": {"N": 13, "J": 4, "county_idx": [1, 2, 4, *whole(1, 2, 10)]}
        | {"log_radon": normal(13), "log_uppm": normal(13), "floor_measure": whole(0, 1, 13)},
        "irt_2pl": {"I": 4, "J": 7, "y": whole(0, 1, 4, 7)},
        # The second row belongs to nobody.
        "lsat": {"R": 4, "T": 3, "N": 9, "response": whole(0, 1, 4, 3), "culm": [2, 2, 5, 9]},
    }


def seeds(data: Data) -> None:
    x1, x2 = jnp.array(data["x1"]), jnp.array(data["x2"])
    alpha0, alpha1, alpha2, alpha12 = (
        numpyro.sample(name, dist.Normal(0, 1)) for name in ("alpha0", "alpha1", "alpha2", "alpha12")
    )
    sigma = numpyro.sample("sigma", dist.HalfCauchy(1))
    with numpyro.plate("plate", data["I"]):
        c = numpyro.sample("c", dist.Normal(0, sigma))
    logits = alpha0 + alpha1 * x1 + alpha2 * x2 + alpha12 * x1 * x2 + c - jnp.mean(c)
    numpyro.sample("n", dist.Binomial(jnp.array(data["N"]), logits=logits), obs=jnp.array(data["n"]))


def glmm(data: Data) -> None:
    year = jnp.array(data["year"])
    alpha = numpyro.sample("alpha", dist.Uniform(-20, 20))
    beta1, beta2, beta3 = (
        numpyro.sample(name, dist.Uniform(-10, 10)) for name in ("beta1", "beta2", "beta3")
    )
    sigma = numpyro.sample("sigma", dist.Uniform(0, 5))
    with numpyro.plate("plate", data["n"]):
        eps = numpyro.sample("eps", dist.Normal(0, sigma))
    log_rate = alpha + beta1 * year + beta2 * year**2 + beta3 * year**3 + eps
    numpyro.sample("C", dist.Poisson(jnp.exp(log_rate)), obs=jnp.array(data["C"]))


def rats(data: Data) -> None:
    flat = dist.ImproperUniform(dist.constraints.positive, (), ())
    sigma_y, sigma_alpha, sigma_beta = (
        numpyro.sample(name, flat) for name in ("sigma_y", "sigma_alpha", "sigma_beta")
    )
    mu_alpha, mu_beta = (numpyro.sample(name, dist.Normal(0, 100)) for name in ("mu_alpha", "mu_beta"))
    with numpyro.plate("plate", data["N"]):
        alpha = numpyro.sample("alpha", dist.Normal(mu_alpha, sigma_alpha))
        beta = numpyro.sample("beta", dist.Normal(mu_beta, sigma_beta))
    rat, x = jnp.array(data["rat"]) - 1, jnp.array(data["x"])
    mean = alpha[rat] + beta[rat] * (x - data["xbar"])
    numpyro.sample("y", dist.Normal(mean, sigma_y), obs=jnp.array(data["y"]))


def radon(data: Data) -> None:
    sigma_y, sigma_alpha = (numpyro.sample(name, dist.HalfNormal(1)) for name in ("sigma_y", "sigma_alpha"))
    mu_alpha = numpyro.sample("mu_alpha", dist.Normal(0, 10))
    beta = numpyro.sample("beta", dist.Normal(0, 10).expand([2]).to_event(1))
    with numpyro.plate("plate", data["J"]):
        alpha = numpyro.sample("alpha", dist.Normal(mu_alpha, sigma_alpha))
    slopes = beta[0] * jnp.array(data["log_uppm"]) + beta[1] * jnp.array(data["floor_measure"])
    mean = alpha[jnp.array(data["county_idx"]) - 1] + slopes
    numpyro.sample("y", dist.Normal(mean, sigma_y), obs=jnp.array(data["log_radon"]))


def irt(data: Data) -> None:
    sigma_theta, sigma_a, sigma_b = (
        numpyro.sample(name, dist.HalfCauchy(2)) for name in ("sigma_theta", "sigma_a", "sigma_b")
    )
    mu_b = numpyro.sample("mu_b", dist.Normal(0, 5))
    theta = numpyro.sample("theta", dist.Normal(0, sigma_theta).expand([data["J"]]).to_event(1))
    a = numpyro.sample("a", dist.LogNormal(0, sigma_a).expand([data["I"]]).to_event(1))
    b = numpyro.sample("b", dist.Normal(mu_b, sigma_b).expand([data["I"]]).to_event(1))
    logits = a[:, None] * (theta - b[:, None])
    numpyro.sample("y", dist.Bernoulli(logits=logits), obs=jnp.array(data["y"]))


def lsat(data: Data) -> None:
    persons = np.diff(data["culm"], prepend=0)
    responses = np.repeat(data["response"], persons, axis=0)
    theta = numpyro.sample("theta", dist.Normal(0, 1).expand([data["N"]]).to_event(1))
    alpha = numpyro.sample("alpha", dist.Normal(0, 100).expand([data["T"]]).to_event(1))
    beta = numpyro.sample("beta", dist.HalfNormal(100))
    logits = beta * theta[:, None] - alpha
    numpyro.sample("r", dist.Bernoulli(logits=logits), obs=jnp.array(responses))


EXPECTED: dict[str, Callable[[Data], None]] = {
    "seeds_centered": seeds,
    "glmm_poisson": glmm,
    "rats": rats,
    "radon_mn-hi_centered": radon,
    "irt_2pl": irt,
    "lsat": lsat,
}


SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    "seeds_centered": {"alpha0": (), "alpha1": (), "alpha12": (), "alpha2": (), "c": (6,), "sigma": ()},
    "glmm_poisson": {"alpha": (), "beta1": (), "beta2": (), "beta3": (), "eps": (8,), "sigma": ()},
    "rats": {"alpha": (4,), "beta": (4,)}
    | dict.fromkeys(("mu_alpha", "mu_beta", "sigma_alpha", "sigma_beta", "sigma_y"), ()),
    "radon_mn-hi_centered": {"alpha": (4,), "beta": (2,)}
    | dict.fromkeys(("mu_alpha", "sigma_alpha", "sigma_y"), ()),
    "irt_2pl": {"a": (4,), "b": (4,)}
    | dict.fromkeys(("mu_b", "sigma_a", "sigma_b", "sigma_theta"), ())
    | {"theta": (7,)},
    "lsat": {"alpha": (3,), "beta": (), "theta": (9,)},
}
"""Of the variables, in order."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, data in made_up_data().items():
        reference = {
            variable: {"mean": np.full(shape, index + 0.5).tolist(), "sd": np.full(shape, 2.0).tolist()}
            for index, (variable, shape) in enumerate(SHAPES[name].items())
        }
        content = {"name": name, "data": data, "reference_unconstrained": reference, "nuts": {}}
        (tmp_path / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    (tmp_path / "another-posterior.json").write_text("{}", encoding="utf-8")
    return tmp_path


def read(folder: Path, name: str) -> Posterior:
    (posterior,) = larger_posteriors(folder, [name])
    return posterior


def test_all_six_are_read(folder: Path) -> None:
    read_from_files = larger_posteriors(folder)
    assert [posterior.name for posterior in read_from_files] == list(LARGER) == list(EXPECTED)
    for posterior in read_from_files:
        names, means = [], []
        for index, (variable, shape) in enumerate(SHAPES[posterior.name].items()):
            names += [f"{variable}[{number}]" for number in range(1, shape[0] + 1)] if shape else [variable]
            means += [index + 0.5] * math.prod(shape)
        assert posterior.parameter_names == names
        assert posterior.dim == len(names)
        np.testing.assert_array_equal(posterior.reference_mean, means)
        np.testing.assert_array_equal(posterior.reference_std, 2.0)
        np.testing.assert_array_equal(posterior.constrain(jnp.asarray(means)), means)


@pytest.mark.parametrize("name", EXPECTED)
def test_values_and_gradients(folder: Path, name: str, x64: None) -> None:
    posterior, data = read(folder, name), made_up_data()[name]
    info = initialize_model(jax.random.key(0), EXPECTED[name], model_args=(data,))
    _, unravel = ravel_pytree(info.param_info.z)
    points = jnp.asarray(np.random.default_rng(1).normal(size=(NUM_POINTS, posterior.dim)))

    def expected_fn(z: jax.Array) -> jax.Array:
        return -info.potential_fn(unravel(z))

    def both(log_density: Callable[[jax.Array], jax.Array]) -> tuple[jax.Array, jax.Array]:
        return jax.jit(jax.vmap(jax.value_and_grad(log_density)))(points)

    (values, gradients), (expected, expected_gradients) = both(posterior.log_density), both(expected_fn)
    np.testing.assert_allclose(values, expected, rtol=1e-10)
    # The terms of an entry may be of the size of the largest entry, and cancel.
    rounding = 1e-13 * float(jnp.max(jnp.abs(expected_gradients)))
    np.testing.assert_allclose(gradients, expected_gradients, rtol=1e-10, atol=rounding)


@pytest.mark.parametrize("name", EXPECTED)
def test_default_float_type(folder: Path, name: str, precision: jnp.dtype) -> None:
    posterior = read(folder, name)
    value, gradient = jax.jit(jax.value_and_grad(posterior.log_density))(jnp.zeros(posterior.dim))
    assert value.dtype == gradient.dtype == precision
    assert jnp.all(jnp.isfinite(gradient))


def test_single_precision_is_enough_for_large_counts(folder: Path) -> None:
    """Near the mode of counts of 10⁵, terms of 10⁶ would leave rounding errors of 0.1."""
    path = folder / "glmm_poisson.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    content["data"] |= {"n": 2, "year": [0.0, 0.0], "C": [100_000, 101_000]}
    content["reference_unconstrained"]["eps"] = {"mean": [0.0, 0.0], "sd": [1.0, 1.0]}
    path.write_text(json.dumps(content), encoding="utf-8")
    z = np.zeros(7, np.float32)
    z[0] = 2 * np.arctanh(np.log(1e5) / 20)
    single = read(folder, "glmm_poisson").log_density(jnp.asarray(z))
    with jax.enable_x64(True):
        double = read(folder, "glmm_poisson").log_density(jnp.asarray(z, float))
    # The slope in a log rate of 11.5 is at most a thousand counts; the other terms are of a few nats.
    assert abs(float(single) - float(double)) < 2 * 1000 * np.spacing(np.float32(11.5))


def test_a_missing_folder_or_file_is_named(folder: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"the larger posteriors must exist, got .*nowhere"):
        larger_posteriors(folder / "nowhere")
    (folder / "rats.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"must have the file rats\.json"):
        larger_posteriors(folder)
    assert read(folder, "lsat").name == "lsat"


def test_an_unknown_name_is_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"must be one of seeds_centered, .*, lsat, got mice"):
        larger_posteriors(folder, ["rats", "mice"])


def test_other_variables_are_refused(folder: Path) -> None:
    path = folder / "lsat.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    content["reference_unconstrained"]["gamma"] = content["reference_unconstrained"].pop("theta")
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ValueError, match=r"lsat\.json must be of alpha\[1\], .*, got .*, beta, gamma\[1\]"):
        larger_posteriors(folder)
