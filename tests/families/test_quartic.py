"""The full-rank normal that knows fourth derivatives: the same expectation, far less noise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dlrd import FullRankNormal
from dlrd.families import split
from dlrd.families.quartic import Fourths, Quartic, quartic

pytestmark = pytest.mark.usefixtures("x64")

LOC = np.array([0.5, -1.0, 2.0])
CHOLESKY = np.array([[1.0, 0.0, 0.0], [0.3, 2.0, 0.0], [0.0, -0.5, 0.7]])
FOURTHS = np.array([0.2, -0.1, 0.05])
ROUNDING = {"rtol": 1e-12, "atol": 1e-12}


@pytest.fixture(name="member")
def of_double_precision(x64: None) -> FullRankNormal:
    return FullRankNormal(LOC, CHOLESKY)


def knowing(member: FullRankNormal) -> Quartic:
    return Quartic(member, Fourths(FOURTHS))


def slopes_of(residual: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """∇ log p with this h = Lᵀ ∇ log p + ε."""
    return np.linalg.solve(CHOLESKY.T, (residual - noise).T).T


@pytest.fixture(scope="module")
def noise() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(4096, 3))


def test_what_is_known_makes_no_noise(noise: np.ndarray, member: FullRankNormal):
    """A log density whose h is the known part alone: the gradient vanishes for every draw."""
    slopes = slopes_of(FOURTHS * (noise**3 - 3 * noise), noise)
    for rows in (slice(1), slice(8)):
        gradient = knowing(member).natural_gradient(slopes[rows], noise[rows])
        for leaf in jax.tree.leaves(gradient.member):
            np.testing.assert_allclose(leaf, 0, atol=1e-12)
    plain = member.natural_gradient(slopes[:8], noise[:8])
    assert np.linalg.norm(plain.cholesky) > 0.1


def test_what_is_taken_out_has_expectation_zero(member: FullRankNormal):
    """By quadrature that is exact for the products: with any numbers known, the same expected gradient."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(6)
    grid = np.stack(np.meshgrid(nodes, nodes, nodes), -1).reshape(-1, 3)
    weight = np.prod(np.stack(np.meshgrid(weights, weights, weights), -1).reshape(-1, 3), axis=1)
    rng = np.random.default_rng(1)
    linear, squares = rng.normal(size=(2, 3, 3))
    slopes = grid @ linear + grid**2 @ squares + 0.3 * grid**3

    def expected(family: Quartic | FullRankNormal) -> np.ndarray:
        def each(slope: jax.Array, noise: jax.Array) -> jax.Array:
            gradient = family.natural_gradient(slope[None], noise[None])
            return family.fisher_coordinates(gradient)

        rows = jax.vmap(each)(jnp.asarray(slopes), jnp.asarray(grid))
        return weight @ np.asarray(rows) / np.sum(weight)

    np.testing.assert_allclose(expected(knowing(member)), expected(member), **ROUNDING)


def test_lessons_find_the_numbers(noise: np.ndarray, member: FullRankNormal):
    """Of independent blocks, beside a part that is not known; within five standard errors."""
    residual = FOURTHS * (noise**3 - 3 * noise) + 0.1 * (noise[:, ::-1] ** 2 - 1)
    blocks = [
        np.asarray(quartic(member).lesson(slopes_of(h, e), e))
        for h, e in zip(np.split(residual, 8), np.split(noise, 8), strict=True)
    ]
    mean, error = np.mean(blocks, axis=0), np.std(blocks, axis=0, ddof=1) / 8**0.5
    assert np.all(np.abs(mean - FOURTHS) < 5 * error)
    np.testing.assert_allclose(
        quartic(member).taught(np.array(blocks)).fourths.values, (1 - error**2 / mean**2) * mean, **ROUNDING
    )


def test_noise_teaches_nothing(member: FullRankNormal):
    """Numbers that their own error explains count as zero, and so do those that are not finite."""
    lessons = np.tile([[1.0, 1.0, np.inf], [-1.0, 1.0, 1.0]], (4, 1))
    np.testing.assert_array_equal(quartic(member).taught(lessons).fourths.values, [0.0, 1.0, 0.0])


def test_it_moves_as_its_member_does(member: FullRankNormal):
    """Steps, strides, corrections and lengths are those of the normal; what is known stays."""
    now = knowing(member)
    before = Quartic(FullRankNormal([0.4, -1.0, 2.2], 1.1 * CHOLESKY), now.fourths)
    step = FullRankNormal([0.1, 0.0, -0.1], 0.05 * np.eye(3))
    way = np.linspace(-0.1, 0.1, 15)
    np.testing.assert_array_equal(now.displacement(before), member.displacement(before.member))
    for moved, expected in (
        (now.moved(Quartic(step, now.fourths)), member.moved(step)),
        (now.extrapolated(before, 2.0), member.extrapolated(before.member, 2.0)),
        (now.corrected(way), member.corrected(way)),
    ):
        assert isinstance(moved, Quartic)
        np.testing.assert_array_equal(moved.fourths.values, FOURTHS)
        for left, right in zip(jax.tree.leaves(moved.member), jax.tree.leaves(expected), strict=True):
            np.testing.assert_array_equal(left, right)


def test_what_is_known_is_not_trained(member: FullRankNormal):
    trained, rest = split(knowing(member))
    assert trained.fourths.values is None
    np.testing.assert_array_equal(rest.fourths.values, FOURTHS)


def test_in_the_precision_of_the_normal():
    single = FullRankNormal(jnp.zeros(2, "float32"), jnp.eye(2, dtype="float32"))
    assert quartic(single).taught(np.ones((8, 2))).fourths.values.dtype == np.float32
