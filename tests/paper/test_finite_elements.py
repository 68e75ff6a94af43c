"""The finite element solver of section 3.3, against scikit-fem and differences."""

import numpy as np
import pytest
import skfem
from scipy.sparse.linalg import spsolve
from skfem.helpers import dot, grad

from dlrd.paper.problems import finite_elements


def some_diffusivities(num: int, seed: int = 0) -> np.ndarray:
    """Rough ones, over a hundredfold range."""
    return np.exp(np.random.default_rng(seed).normal(size=(num, 21**2)))


def scikit_fem_solution(diffusivity: np.ndarray) -> np.ndarray:
    """u at the inner nodes, in the order of our mesh."""
    ticks = np.linspace(0, 1, 21)
    mesh = skfem.MeshQuad.init_tensor(ticks, ticks)
    theirs = np.rint(20 * mesh.p).astype(int)
    number = theirs[1] * 21 + theirs[0]  # our number of their node
    basis = skfem.Basis(mesh, skfem.ElementQuad1(), intorder=3)  # 2 × 2 points
    assert basis.X.shape == (2, 4)

    @skfem.BilinearForm
    def stiffness(u, v, w):
        return w["diffusivity"] * dot(grad(u), grad(v))

    @skfem.LinearForm
    def load(v, w):
        return -10.0 * v

    matrix = stiffness.assemble(basis, diffusivity=basis.interpolate(diffusivity[number]))
    inner = mesh.interior_nodes()
    solution = np.zeros(len(number))
    solution[number[inner]] = spsolve(matrix[inner][:, inner].tocsc(), load.assemble(basis)[inner])
    return solution[finite_elements.unit_square().is_inner]


def test_solution_is_scikit_fems() -> None:
    diffusivities = np.concatenate([np.ones((1, 441)), some_diffusivities(3)])
    solutions = finite_elements.solve(diffusivities)
    assert solutions.shape == (4, 361)
    for diffusivity, solution in zip(diffusivities, solutions, strict=True):
        expected = scikit_fem_solution(diffusivity)
        np.testing.assert_allclose(solution, expected, atol=1e-10 * np.max(np.abs(expected)))


def test_sign_and_scale() -> None:
    """For D = 1 the middle of the square has u = −10 · 0.073671…, known from the series of this equation."""
    odd = np.arange(1, 200, 2)
    m, n = np.meshgrid(odd, odd)
    series = 16 / np.pi**4 * np.sum((-1.0) ** ((m + n) // 2 - 1) / (m * n * (m**2 + n**2)))
    middle = finite_elements.solve(np.ones((1, 441)))[0, 180]
    assert middle == pytest.approx(-10 * series, rel=2 / 20**2)  # the elements' error is of second order


def test_gradient_is_the_slope() -> None:
    """Central differences in random directions; their error is of the order of step² and rounding / step."""
    rng = np.random.default_rng(1)
    (diffusivity,) = some_diffusivities(1)
    observed = rng.normal(size=361)
    _, (gradient,) = finite_elements.misfit_and_gradient(diffusivity[None], observed)
    step = 1e-5
    for _ in range(5):
        direction = diffusivity * rng.normal(size=441)
        pair = np.stack([diffusivity + step * direction, diffusivity - step * direction])
        (above, below), _ = finite_elements.misfit_and_gradient(pair, observed)
        assert (above - below) / (2 * step) == pytest.approx(gradient @ direction, rel=1e-6)


def test_misfit_is_of_the_solution() -> None:
    diffusivities = some_diffusivities(3)
    observed = np.random.default_rng(1).normal(size=361)
    values, _ = finite_elements.misfit_and_gradient(diffusivities, observed)
    residuals = finite_elements.solve(diffusivities) - observed
    np.testing.assert_allclose(values, 0.5 * np.sum(residuals**2, axis=1), rtol=1e-13)


@pytest.mark.parametrize("num", [0, 1, 7, 8, 9, 17])
def test_batch_does_not_matter(num: int) -> None:
    """Each draw's results are the same, bit for bit, alone and in any batch at any place."""
    diffusivities = some_diffusivities(num)
    observed = np.random.default_rng(1).normal(size=361)
    values, gradients = finite_elements.misfit_and_gradient(diffusivities, observed)
    reversed_values, reversed_gradients = finite_elements.misfit_and_gradient(diffusivities[::-1], observed)
    np.testing.assert_array_equal(values, reversed_values[::-1])
    np.testing.assert_array_equal(gradients, reversed_gradients[::-1])
    for i in range(num):
        alone, alone_gradient = finite_elements.misfit_and_gradient(diffusivities[i : i + 1], observed)
        np.testing.assert_array_equal(values[i], alone[0])
        np.testing.assert_array_equal(gradients[i], alone_gradient[0])


def test_a_bad_draw_spoils_no_other() -> None:
    diffusivities = some_diffusivities(3)
    observed = np.zeros(361)
    values, gradients = finite_elements.misfit_and_gradient(diffusivities, observed)
    spoiled = diffusivities.copy()
    spoiled[1, 200] = np.nan
    bad_values, bad_gradients = finite_elements.misfit_and_gradient(spoiled, observed)
    assert np.isnan(bad_values[1])
    np.testing.assert_array_equal(bad_values[[0, 2]], values[[0, 2]])
    np.testing.assert_array_equal(bad_gradients[[0, 2]], gradients[[0, 2]])


def test_arrays_in_any_order_and_width() -> None:
    diffusivities = some_diffusivities(3).astype(np.float32)
    expected = finite_elements.solve(diffusivities.astype(np.float64))
    np.testing.assert_array_equal(finite_elements.solve(np.asfortranarray(diffusivities)), expected)
