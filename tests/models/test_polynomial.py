"""Polynomials that stand for outputs: exact for polynomials, predicting where they are learnt from runs."""

import math

import jax
import numpy as np
import pytest

from dlrd.models.polynomial import MAX_TERMS, degree_for, num_terms, regression, tangent

pytestmark = pytest.mark.usefixtures("x64")
RNG = np.random.default_rng(0)


def squared(truth: np.ndarray) -> object:
    return lambda predicted: float(np.sum((predicted - truth) ** 2))


def test_a_tangent_has_the_outputs_and_the_jacobian_of_its_point() -> None:
    point, outputs, jacobian = RNG.normal(size=3), RNG.normal(size=5), RNG.normal(size=(3, 5))
    found = tangent(point, outputs, jacobian)
    np.testing.assert_allclose(found(point), outputs, rtol=1e-12)
    np.testing.assert_allclose(jax.jacobian(found)(point + 1.0), jacobian.T, rtol=1e-12)


@pytest.mark.parametrize("degree", [1, 2, 4])
def test_a_polynomial_is_learnt_as_it_is(degree: int) -> None:
    """Of more runs than terms nothing is left, up to the weakest ridge."""

    def polynomial(points: np.ndarray) -> np.ndarray:
        along = points @ np.array([[0.5, -1.0], [1.0, 0.3]]) + 0.2
        return np.sum([along**power / math.factorial(power) for power in range(degree + 1)], axis=0)

    points, new = 2.0 + RNG.normal(size=(60, 2)), 2.0 + RNG.normal(size=(20, 2))
    known = tangent(np.zeros(2), np.zeros(2), np.zeros((2, 2)))
    found = regression(points, polynomial(points), known, squared(polynomial(points)))
    np.testing.assert_allclose(jax.vmap(found)(new), polynomial(new), rtol=1e-5, atol=1e-5)


def test_of_few_runs_each_is_predicted_from_the_others() -> None:
    """The choice is by what predictions miss, not by residuals, which fewer runs than terms can make zero."""
    dim = 4

    def outputs(points: np.ndarray) -> np.ndarray:
        return np.stack([np.exp(0.2 * points[:, 0]), points[:, 1] + 0.3 * points[:, 2] ** 2], axis=1)

    missed = []
    points, new = RNG.normal(size=(24, dim)), RNG.normal(size=(500, dim))
    jacobian = np.zeros((dim, 2))
    jacobian[0, 0], jacobian[1, 1] = 0.2, 1.0
    known = tangent(np.zeros(dim), outputs(np.zeros((1, dim)))[0], jacobian)

    def misses(predicted: np.ndarray) -> float:
        missed.append(float(np.mean((predicted - outputs(points)) ** 2)))
        return missed[-1]

    found = regression(points, outputs(points), known, misses)
    error, of_tangent = (
        np.mean((np.asarray(jax.vmap(each)(new)) - outputs(new)) ** 2) for each in (found, known)
    )
    assert error < 0.5 * of_tangent
    # Over 24 runs a mean square scatters by about a third.
    assert 0.3 * error < min(missed) < 3 * error


def test_noise_alone_teaches_nothing() -> None:
    points, noise = RNG.normal(size=(40, 5)), RNG.normal(size=(40, 3))
    known = tangent(np.zeros(5), np.zeros(3), np.zeros((5, 3)))
    found = regression(points, noise, known, squared(noise))
    learned = np.mean(np.asarray(jax.vmap(found)(RNG.normal(size=(200, 5)))) ** 2)
    assert learned < 0.3  # of a variance of one; all that could be fitted has one


@pytest.mark.parametrize(
    ("dim", "num_outputs", "degree"),
    [(1, 10, 4), (5, 10, 4), (10, 10, 4), (29, 361, 2), (60, 10, 1), (29, 10**6, 1)],
)
def test_the_degree_is_as_high_as_is_affordable(dim: int, num_outputs: int, degree: int) -> None:
    assert degree_for(dim, num_outputs) == degree
    assert degree == 1 or num_terms(dim, degree) <= MAX_TERMS
