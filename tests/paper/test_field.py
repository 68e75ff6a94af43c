"""Section 3.3 of the paper: the diffusivity field and its density."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

import dlrd
from dlrd.paper.problems import finite_elements
from dlrd.paper.problems.field import field, karhunen_loeve


def test_modes_are_the_covariances() -> None:
    """Against a dense decomposition. Eigenvalues are double, so what is compared is what a pair shares."""
    points = finite_elements.unit_square().points
    distances = np.linalg.norm(points[:, None] - points[None], axis=2)
    covariance = np.exp(-(distances**2) / (2 * 0.2**2))
    eigenvalues, eigenvectors = np.linalg.eigh(covariance)
    eigenvalues, eigenvectors = eigenvalues[::-1], eigenvectors[:, ::-1]
    modes = field().modes

    explained = np.cumsum(eigenvalues) / np.trace(covariance)
    assert modes.shape == (441, 29)
    assert explained[27] < 0.99 <= explained[28]
    np.testing.assert_allclose(modes.T @ modes, np.diag(eigenvalues[:29]), atol=1e-10)
    np.testing.assert_allclose(covariance @ modes, modes * eigenvalues[:29], atol=1e-10)
    gaps = -np.diff(eigenvalues[:30])
    for num in np.flatnonzero(gaps > 1e-6) + 1:  # all modes of these eigenvalues
        largest = (eigenvectors[:, :num] * eigenvalues[:num]) @ eigenvectors[:, :num].T
        np.testing.assert_allclose(modes[:, :num] @ modes[:, :num].T, largest, atol=1e-9)


def test_modes_do_not_depend_on_the_signs_of_eigenvectors(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = karhunen_loeve(21)
    decompose = np.linalg.eigh

    def with_other_signs(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        eigenvalues, eigenvectors = decompose(matrix)
        return eigenvalues, eigenvectors * np.random.default_rng(0).choice([-1, 1], size=len(matrix))

    monkeypatch.setattr(np.linalg, "eigh", with_other_signs)
    np.testing.assert_array_equal(karhunen_loeve(21), expected)


def test_the_same_problem_each_time() -> None:
    first, second = field(), field()
    np.testing.assert_array_equal(first.modes, second.modes)
    np.testing.assert_array_equal(first.truth, second.truth)
    np.testing.assert_array_equal(first.observed, second.observed)
    np.testing.assert_array_equal(first.truth, np.random.default_rng(0).normal(size=29))
    assert np.all(field(seed=1).truth != first.truth)


def test_observations_are_noisy_solutions() -> None:
    """The noise of 361 observations has the variance 0.05², within five standard errors."""
    problem = field()
    noise = problem.observed - finite_elements.solve(np.exp(problem.modes @ problem.truth)[None])[0]
    assert np.mean(noise**2) / 0.05**2 == pytest.approx(1, abs=5 * np.sqrt(2 / 361))


def test_density(x64: None) -> None:
    problem = field()
    z = np.random.default_rng(1).normal(size=29)
    solution = finite_elements.solve(np.exp(problem.modes @ z)[None])[0]
    expected = np.sum(stats.norm.logpdf(problem.observed, solution, 0.05)) + np.sum(stats.norm.logpdf(z))
    np.testing.assert_allclose(problem.log_density(jnp.asarray(z)), expected, rtol=1e-12)


def test_gradient_is_the_slope(x64: None) -> None:
    log_density = field().log_density
    z = jnp.asarray(np.random.default_rng(1).normal(size=29))
    gradient = jax.grad(log_density)(z)
    step = 1e-4
    slopes = [
        (log_density(z + step * axis) - log_density(z - step * axis)) / (2 * step) for axis in jnp.eye(29)
    ]
    np.testing.assert_allclose(gradient, jnp.asarray(slopes), atol=1e-6 * jnp.max(jnp.abs(gradient)))


def check_transformations(dtype: type) -> None:
    """jit, vmap and grad, in any order, give what the formula gives for one draw after the other."""
    problem = field()
    draws = np.random.default_rng(1).normal(size=(2, 3, 29)).astype(dtype)
    values = jax.jit(jax.vmap(jax.vmap(problem.log_density)))(jnp.asarray(draws))
    gradients = jax.vmap(jax.jit(jax.vmap(jax.grad(problem.log_density))))(jnp.asarray(draws))
    assert gradients.dtype == dtype

    rounding = 1e3 * np.finfo(dtype).eps
    constant = 0.5 * 390 * np.log(2 * np.pi) + 361 * np.log(0.05)
    for i, j in np.ndindex(2, 3):
        z = draws[i, j].astype(float)
        diffusivity = np.exp(problem.modes @ z)
        (misfit,), (slope,) = finite_elements.misfit_and_gradient(diffusivity[None], problem.observed)
        np.testing.assert_allclose(values[i, j], -misfit / 0.05**2 - 0.5 * z @ z - constant, rtol=rounding)
        expected = -problem.modes.T @ (slope * diffusivity) / 0.05**2 - z
        np.testing.assert_allclose(gradients[i, j], expected, atol=rounding * np.max(np.abs(expected)))


def check_fit() -> None:
    start = dlrd.FullRankNormal.standard(29)
    optimizer = optax.chain(optax.scale_by_adam(), dlrd.dynamic_decay(1e-2))
    fit = dlrd.fit(field().log_density, start, key=0, optimizer=optimizer, steps=200, progress=False)
    assert fit.num_steps == 200
    assert np.mean(fit.history.elbo[-20:]) > np.mean(fit.history.elbo[:20])


@pytest.mark.slow
def test_double_precision(x64: None) -> None:
    check_transformations(np.float64)
    check_fit()


def test_single_precision() -> None:
    check_transformations(np.float32)
    check_fit()


def test_single_precision_among_double(x64: None) -> None:
    check_transformations(np.float32)
