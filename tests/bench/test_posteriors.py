"""The nine posteriors, on made-up data: each log density against `scipy.stats`, term by term."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pymc.blocking import DictToArrayBijection, RaveledVars
from scipy import stats
from scipy.special import expit

from dlrd.bench.posteriors import Posterior, posteriors
from dlrd.bench.posteriors.in_pymc import pymc_model
from dlrd.bench.seconds.problems import PROBLEMS, problem

NUM_ROWS = 12
Unconstrained = np.ndarray
Expected = tuple[float, np.ndarray]  # the log density, and the constrained parameters


def made_up_data() -> dict[str, dict[str, Any]]:
    """Data of the same form as in the files, with numbers of no meaning."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> Any:
        return rng.normal(size=shape or NUM_ROWS).tolist()

    def positive() -> list[float]:
        return rng.uniform(0.5, 3, NUM_ROWS).tolist()

    def whole(low: int, high: int) -> list[int]:
        return rng.integers(low, high, NUM_ROWS, endpoint=True).tolist()

    return {
        "kidiq-kidscore_momhsiq": {
            "N": NUM_ROWS,
            "kid_score": whole(40, 140),
            "mom_hs": whole(0, 1),
            "mom_iq": positive(),
            "mom_hs_new": 1,
        },
        "sblrc-blr": {"N": NUM_ROWS, "D": 3, "X": normal(NUM_ROWS, 3), "y": normal()},
        "nes1996-nes": {
            "N": NUM_ROWS,
            "partyid7": whole(1, 7),
            "real_ideo": whole(1, 7),
            "race_adj": whole(1, 2),
            "age_discrete": whole(1, 4),
            "educ1": whole(1, 4),
            "gender": whole(0, 1),
            "income": whole(1, 5),
            "year": NUM_ROWS * [1996],
        },
        "eight_schools-eight_schools_noncentered": {"J": NUM_ROWS, "y": normal(), "sigma": positive()},
        "garch-garch11": {"T": NUM_ROWS, "y": normal(), "sigma1": 0.7},
        "gp_pois_regr-gp_regr": {"N": NUM_ROWS, "x": normal(), "y": normal(), "k": whole(0, 9)},
        "arK-arK": {"K": 3, "T": NUM_ROWS, "y": normal()},
        "earnings-logearn_interaction": {
            "N": NUM_ROWS,
            "earn": whole(100, 9000),
            "height": positive(),
            "male": whole(0, 1),
        },
        "mesquite-logmesquite_logvash": {
            "N": NUM_ROWS,
            **{name: positive() for name in ("canopy_height", "diam1", "diam2", "total_height", "weight")},
            "density": whole(1, 9),
            "group": whole(0, 1),
        },
    }


def names_of(name: str, num: int) -> list[str]:
    return [f"{name}[{number + 1}]" for number in range(num)]


PARAMETERS = {
    "kidiq-kidscore_momhsiq": [*names_of("beta", 3), "sigma"],
    "sblrc-blr": [*names_of("beta", 3), "sigma"],
    "nes1996-nes": [*names_of("beta", 9), "sigma"],
    "eight_schools-eight_schools_noncentered": [*names_of("theta", NUM_ROWS), "mu", "tau"],
    "garch-garch11": ["mu", "alpha0", "alpha1", "beta1"],
    "gp_pois_regr-gp_regr": ["rho", "alpha", "sigma"],
    "arK-arK": ["alpha", *names_of("beta", 3), "sigma"],
    "earnings-logearn_interaction": [*names_of("beta", 4), "sigma"],
    "mesquite-logmesquite_logvash": [*names_of("beta", 6), "sigma"],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, data in made_up_data().items():
        reference = {
            parameter: {"mean": index + 0.5, "sd": index + 1.0, "q05": 0.0}
            for index, parameter in enumerate(PARAMETERS[name])
        }
        content = {"name": name, "num_reference_draws": 10_000, "data": data, "reference": reference}
        (tmp_path / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    (tmp_path / "README.md").write_text("Something else.", encoding="utf-8")
    (tmp_path / "another-posterior.json").write_text("{}", encoding="utf-8")
    return tmp_path


def read(folder: Path, name: str) -> Posterior:
    return next(posterior for posterior in posteriors(folder) if posterior.name == name)


def linear(
    design: list[Any], response: Any, z: Unconstrained, log_prior: Callable[[np.ndarray, float], float]
) -> Expected:
    """The columns' coefficients, and the noise by its logarithm."""
    beta, sigma = z[:-1], np.exp(z[-1])
    likelihood = stats.norm.logpdf(response, np.transpose(design) @ beta, sigma)
    return np.sum(likelihood) + log_prior(beta, sigma) + z[-1], np.append(beta, sigma)


def kidscore(data: dict[str, Any], z: Unconstrained) -> Expected:
    design = [np.ones(NUM_ROWS), data["mom_hs"], data["mom_iq"]]
    prior = stats.halfcauchy(scale=2.5)
    return linear(design, data["kid_score"], z, lambda beta, sigma: prior.logpdf(sigma))


def blr(data: dict[str, Any], z: Unconstrained) -> Expected:
    def log_prior(beta: np.ndarray, sigma: float) -> float:
        return np.sum(stats.norm.logpdf(beta, 0, 10)) + stats.halfnorm.logpdf(sigma, scale=10)

    return linear(list(np.transpose(data["X"])), data["y"], z, log_prior)


def nes(data: dict[str, Any], z: Unconstrained) -> Expected:
    age = np.array(data["age_discrete"])
    design = [np.ones(NUM_ROWS), data["real_ideo"], data["race_adj"], age == 2, age == 3, age == 4]
    design += [data["educ1"], data["gender"], data["income"]]
    return linear(design, data["partyid7"], z, lambda beta, sigma: 0.0)


def logearn(data: dict[str, Any], z: Unconstrained) -> Expected:
    height, male = np.array(data["height"]), np.array(data["male"])
    design = [np.ones(NUM_ROWS), height, male, height * male]
    return linear(design, np.log(data["earn"]), z, lambda beta, sigma: 0.0)


def logmesquite(data: dict[str, Any], z: Unconstrained) -> Expected:
    wide, narrow, canopy = (np.array(data[name]) for name in ("diam1", "diam2", "canopy_height"))
    products = [wide * narrow * canopy, wide * narrow, wide / narrow, data["total_height"]]
    design = [np.ones(NUM_ROWS), *map(np.log, products), data["group"]]
    return linear(design, np.log(data["weight"]), z, lambda beta, sigma: 0.0)


def eight_schools(data: dict[str, Any], z: Unconstrained) -> Expected:
    eta, mu, tau = z[:-2], z[-2], np.exp(z[-1])
    theta = mu + tau * eta
    value = np.sum(stats.norm.logpdf(data["y"], theta, data["sigma"])) + np.sum(stats.norm.logpdf(eta))
    value += stats.norm.logpdf(mu, 0, 5) + stats.halfcauchy.logpdf(tau, scale=5) + z[-1]
    return value, np.array([*theta, mu, tau])


def garch(data: dict[str, Any], z: Unconstrained) -> Expected:
    mu, alpha0, alpha1 = z[0], np.exp(z[1]), expit(z[2])
    beta1 = (1 - alpha1) * expit(z[3])
    std, value = data["sigma1"], 0.0
    for y in data["y"]:
        value += stats.norm.logpdf(y, mu, std)
        std = np.sqrt(alpha0 + alpha1 * (y - mu) ** 2 + beta1 * std**2)
    # dα₀ dα₁ dβ₁; the logistic density is the slope of the log odds' inverse.
    value += z[1] + stats.logistic.logpdf(z[2]) + np.log(1 - alpha1) + stats.logistic.logpdf(z[3])
    return value, np.array([mu, alpha0, alpha1, beta1])


def gaussian_process(data: dict[str, Any], z: Unconstrained) -> Expected:
    rho, alpha, sigma = np.exp(z)
    x = np.array(data["x"])
    covariance = alpha**2 * np.exp(-((x[:, None] - x[None]) ** 2) / (2 * rho**2)) + sigma * np.eye(NUM_ROWS)
    value = stats.multivariate_normal.logpdf(data["y"], np.zeros(NUM_ROWS), covariance)
    value += stats.gamma.logpdf(rho, 25, scale=1 / 4) + stats.halfnorm.logpdf(alpha, scale=2)
    return value + stats.halfnorm.logpdf(sigma) + np.sum(z), np.exp(z)


def autoregression(data: dict[str, Any], z: Unconstrained) -> Expected:
    alpha, beta, sigma = z[0], z[1:-1], np.exp(z[-1])
    value = z[-1] + stats.halfcauchy.logpdf(sigma, scale=2.5) + np.sum(stats.norm.logpdf(z[:-1], 0, 10))
    for now in range(3, NUM_ROWS):
        mean = alpha + sum(beta[lag - 1] * data["y"][now - lag] for lag in (1, 2, 3))
        value += stats.norm.logpdf(data["y"][now], mean, sigma)
    return value, np.append(z[:-1], sigma)


EXPECTED = {
    "kidiq-kidscore_momhsiq": kidscore,
    "sblrc-blr": blr,
    "nes1996-nes": nes,
    "eight_schools-eight_schools_noncentered": eight_schools,
    "garch-garch11": garch,
    "gp_pois_regr-gp_regr": gaussian_process,
    "arK-arK": autoregression,
    "earnings-logearn_interaction": logearn,
    "mesquite-logmesquite_logvash": logmesquite,
}


def test_all_nine_are_read(folder: Path) -> None:
    read_from_files = posteriors(folder)
    assert {posterior.name for posterior in read_from_files} == set(EXPECTED)
    for posterior in read_from_files:
        num_parameters = len(PARAMETERS[posterior.name])
        assert posterior.parameter_names == PARAMETERS[posterior.name]
        np.testing.assert_array_equal(posterior.reference_mean, np.arange(num_parameters) + 0.5)
        np.testing.assert_array_equal(posterior.reference_std, np.arange(num_parameters) + 1)


@pytest.mark.parametrize("name", EXPECTED)
def test_values(folder: Path, name: str, x64: None) -> None:
    """Both the density and the parameters, at points all over the place."""
    posterior, data = read(folder, name), made_up_data()[name]
    points = np.random.default_rng(1).normal(size=(20, posterior.dim))
    values = jax.jit(jax.vmap(posterior.log_density))(jnp.asarray(points))
    parameters = jax.jit(jax.vmap(posterior.constrain))(jnp.asarray(points))
    expected, expected_parameters = zip(*(EXPECTED[name](data, point) for point in points), strict=True)
    # A covariance of condition 1e5 or a residual of many times the noise leave some of the sixteen digits.
    np.testing.assert_allclose(values, expected, rtol=1e-10)
    np.testing.assert_allclose(parameters, expected_parameters, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPECTED)
def test_default_float_type(folder: Path, name: str, precision: jnp.dtype) -> None:
    posterior = read(folder, name)
    z = jnp.zeros(posterior.dim)
    value, gradient = jax.jit(jax.value_and_grad(posterior.log_density))(z)
    assert value.dtype == gradient.dtype == jax.eval_shape(posterior.constrain, z).dtype == precision
    assert jnp.all(jnp.isfinite(gradient))


def test_single_precision_is_enough_where_columns_are_collinear(folder: Path) -> None:
    """The columns differ by a thousandth; sums of squares of 10⁶ would leave rounding errors of 0.1."""
    path = folder / "sblrc-blr.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    column = np.random.default_rng(2).normal(100, 1, size=NUM_ROWS)
    design = column[:, None] + 1e-3 * np.array(content["data"]["X"])
    content["data"] |= {"X": design.tolist(), "y": (design @ [1.0, 2.0, 3.0]).tolist()}
    path.write_text(json.dumps(content), encoding="utf-8")
    z = np.array([1.25, 1.75, 3.0, 0.0])  # numbers that single precision has
    value = read(folder, "sblrc-blr").log_density(jnp.asarray(z))
    expected, _ = blr(content["data"], z)
    np.testing.assert_allclose(value, expected, rtol=100 * np.finfo(np.float32).eps)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", PROBLEMS)
def test_pymc_models_have_the_same_density(folder: Path, name: str) -> None:
    """Of the same coordinates, up to a constant, of which PyTensor keeps fewer digits."""
    posterior, model = problem(folder, name), pymc_model(folder, name)
    draws = 0.3 * np.random.default_rng(3).normal(size=(2, posterior.dim))
    start = DictToArrayBijection.map(model.initial_point())
    log_density = model.compile_logp(mode="FAST_COMPILE")
    found = [
        log_density(DictToArrayBijection.rmap(RaveledVars(z, start.point_map_info))).item() for z in draws
    ]
    expected = jax.vmap(posterior.log_density)(jnp.asarray(draws))
    np.testing.assert_allclose(np.diff(found), np.diff(expected), rtol=1e-9)
    # What is drawn has the names of the reference.
    assert {name.partition("[")[0] for name in posterior.parameter_names} <= set(model.named_vars)


def test_a_missing_folder_or_file_is_named(folder: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"the folder of the posteriors must exist, got .*nowhere"):
        posteriors(folder / "nowhere")
    (folder / "arK-arK.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"must have the file arK-arK\.json"):
        posteriors(folder)


def test_other_parameters_are_refused(folder: Path) -> None:
    path = folder / "garch-garch11.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    content["reference"]["gamma"] = content["reference"].pop("beta1")
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ValueError, match=r"garch-garch11\.json must be of mu, alpha0, alpha1, beta1, got mu"):
        posteriors(folder)
