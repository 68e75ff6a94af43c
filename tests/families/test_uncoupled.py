"""Where the model has no pattern, a sparse normal is fitted as a mean-field one, and given as what it is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dlrd
from dlrd.families import member_of
from dlrd.families.curvature import MAX_WHOLE, DenseCurvature
from dlrd.families.curved import Curved
from dlrd.families.uncoupled import uncoupled

pytestmark = pytest.mark.usefixtures("x64")

MEAN, STD = np.array([1.0, -2.0, 0.5]), np.array([0.1, 2.0, 1.0])
HESSIAN = np.diag(STD**-2.0) + 0.1
CURVATURE = DenseCurvature(HESSIAN, np.linalg.cholesky(np.linalg.inv(HESSIAN)))


def made() -> Curved:
    return uncoupled(MEAN, STD, CURVATURE, jnp.float64, dlrd.SparseNormal)


def mean_field() -> Curved:
    return Curved(dlrd.MeanFieldNormal(MEAN, np.log(STD)), CURVATURE)


def test_users_get_the_sparse_normal() -> None:
    member = member_of(made())
    assert type(member) is dlrd.SparseNormal
    assert not member.has_pattern
    np.testing.assert_allclose(member.mean, MEAN)
    np.testing.assert_allclose(member.std, STD)
    draws = member.sample(jax.random.key(0), (4,))
    np.testing.assert_allclose(member.log_prob(draws), mean_field().log_prob(draws))


def test_it_moves_as_the_mean_field_normal_does() -> None:
    noise = made().sample_noise(jax.random.key(0), 8)
    slopes = -noise
    one, other = made(), mean_field()
    moved = one.moved(one.natural_gradient(slopes, noise))
    expected = other.moved(other.natural_gradient(slopes, noise))
    np.testing.assert_array_equal(moved.mean, expected.mean)
    np.testing.assert_array_equal(moved.std, expected.std)
    assert type(member_of(moved)) is dlrd.SparseNormal
    further, expected = moved.extrapolated(one, 2.0), expected.extrapolated(other, 2.0)
    np.testing.assert_array_equal(further.mean, expected.mean)


def test_starts_without_a_pattern() -> None:
    """At a mode of which no pattern is known, and as given."""
    q = dlrd.SparseNormal.standard(3)
    assert isinstance(q.at_mode(MEAN, CURVATURE), Curved)
    np.testing.assert_allclose(q.at_mode(MEAN, CURVATURE).std, HESSIAN.diagonal() ** -0.5)
    there = dlrd.SparseNormal.of_scales(MEAN, STD).as_start()
    np.testing.assert_allclose([there.mean, there.std], [MEAN, STD])
    coupled = dlrd.SparseNormal.from_precision(MEAN, np.eye(3) + 0.1)
    assert coupled.as_start() is coupled


def test_a_fit_without_a_pattern_is_no_worse_than_a_mean_field_one() -> None:
    """Each coordinate with all others, of which Hessians would be dear: the two are the same fit."""
    dim = MAX_WHOLE + 1

    def tied(z: jax.Array) -> jax.Array:
        return jnp.sum(z - jnp.exp(z)) - 0.5 * jnp.sum(z) ** 2 / 20

    sparse, apart = (
        dlrd.fit(tied, kind.standard(dim), key=0, progress=False, max_gradients=20_000)
        for kind in (dlrd.SparseNormal, dlrd.MeanFieldNormal)
    )
    assert isinstance(sparse.family, dlrd.SparseNormal)
    assert sparse.outcome is apart.outcome is dlrd.Outcome.CERTIFIED
    assert sparse.elbo == pytest.approx(apart.elbo, rel=1e-9)
