"""Certificates: the gap that the gradient tells is the one that there is."""

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dlrd
from dlrd.families import Family, member_of
from dlrd.families.curvature import DenseCurvature, LowRankCurvature
from dlrd.families.curved import Curved
from dlrd.families.sparse_geometry import NUM_SKETCHES
from dlrd.fitting.automatic.judge.certificate import (
    MIN_DRAWS,
    Certificate,
    certify,
    confirmed,
    correction,
    improvement,
    with_ways,
)
from dlrd.models import FunctionModel, LogDensity

KEY = jax.random.key(0)
DIM = (3,)
COVARIANCE = np.array([[1.0, 0.8, 0.0], [0.8, 2.0, -0.5], [0.0, -0.5, 0.3]])
PRECISION = np.linalg.inv(COVARIANCE)
ROOT = np.linalg.cholesky(COVARIANCE)
BEST_LOG_SCALE = -0.5 * np.log(np.diagonal(PRECISION))


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def normal(z: jax.Array) -> jax.Array:
    """Its evidence is 1."""
    return -0.5 * z @ PRECISION @ z - jnp.log(jnp.diagonal(ROOT)).sum() - 1.5 * jnp.log(2 * jnp.pi)


def mean_field(shift: np.ndarray | float, log_scale: np.ndarray | float = 0.0) -> Curved:
    """Away from the best mean-field normal, with the exact curvature."""
    family = dlrd.MeanFieldNormal(np.zeros(3) + shift, BEST_LOG_SCALE + log_scale)
    return Curved(family, DenseCurvature(PRECISION, ROOT))


def full_rank(shift: np.ndarray | float, change: np.ndarray | float = 0.0) -> dlrd.FullRankNormal:
    """Away from the normal itself, in its own coordinates."""
    return dlrd.FullRankNormal(
        ROOT @ (np.zeros(3) + shift), ROOT @ (np.eye(3) + np.tril(change * np.ones(3)))
    )


def excess(family: dlrd.MeanFieldNormal) -> float:
    """By how much the ELBO is below that of the best mean-field normal."""
    exact, best = dlrd.FullRankNormal(np.zeros(3), ROOT), dlrd.MeanFieldNormal(np.zeros(3), BEST_LOG_SCALE)
    return float(dlrd.kl(family, exact) - dlrd.kl(best, exact))


def measured(
    log_density: LogDensity,
    family: Family,
    num_draws: int,
    key: jax.Array = KEY,
    came_from: Family | None = None,
    shorter: Certificate | None = None,
) -> Certificate:
    model = FunctionModel(log_density, DIM)
    return certify(model, family, key, num_draws, came_from or family, shorter)


FACTOR = np.array([[1.0], [-2.0], [0.5]])


def low_rank(shift: np.ndarray | float, change: np.ndarray | float = 0.0) -> dlrd.LowRankNormal:
    """Away from a normal of rank one beside the identity."""
    return dlrd.LowRankNormal(np.zeros(3) + shift, np.zeros(3) + change, FACTOR * (1 + change))


CHAIN = np.diag([2.0, 2.5, 1.5]) - np.diag([1.0, 0.7], -1) - np.diag([1.0, 0.7], 1)


def sparse(shift: np.ndarray | float, change: np.ndarray | float = 0.0) -> dlrd.SparseNormal:
    """Away from a normal whose first and last coordinate are coupled by the second alone."""
    root = np.diag(1 + change * np.array([1.0, -0.5, 0.7]))
    return dlrd.SparseNormal.from_precision(np.zeros(3) + shift, root @ CHAIN @ root)


def centered(covariance: np.ndarray) -> dlrd.FullRankNormal:
    return dlrd.FullRankNormal(np.zeros(3), np.linalg.cholesky(covariance))


def improved(log_density: LogDensity, old: Family, new: Family, num_draws: int) -> tuple[float, float]:
    return improvement(FunctionModel(log_density, DIM), old, new, KEY, num_draws)


SIZES = np.array([0.01, -0.02, 0.03])


def test_gap_of_a_displaced_full_rank_normal_is_the_divergence() -> None:
    exact = dlrd.FullRankNormal(np.zeros(3), ROOT)
    for family in (
        full_rank(SIZES),
        full_rank(0.0, np.diag(SIZES)),
        full_rank(0.0, 0.02),
        full_rank(SIZES, 0.02 - np.diag(SIZES)),
    ):
        seen = measured(normal, family, 4096)
        # Half the squared gradient is the first term of a series in the displacement.
        expected = float(dlrd.kl(family, exact))
        assert abs(seen.gap - expected) < 3 * seen.gap_error + 2 * 0.05 * expected


def test_gap_of_a_displaced_mean_field_normal_is_what_the_elbo_lacks() -> None:
    for family in (mean_field(SIZES), mean_field(0.0, SIZES), mean_field(SIZES[::-1], -SIZES)):
        seen = measured(normal, family, MIN_DRAWS)
        expected = excess(family.member)
        assert abs(seen.gap - expected) < 3 * seen.gap_error + 2 * 0.03 * expected


def test_shifted_mean_is_told_exactly() -> None:
    """However far: the gradient of a quadratic is linear."""
    for family, expected in (
        (full_rank(SIZES * 100), 0.5 * np.sum(SIZES**2) * 1e4),
        (mean_field(SIZES * 100), excess(mean_field(SIZES * 100).member)),
    ):
        seen = measured(normal, family, MIN_DRAWS)
        np.testing.assert_allclose(seen.gap, expected, rtol=1e-10)


def test_gap_of_a_displaced_normal_of_low_rank_is_the_divergence() -> None:
    exact = centered(np.eye(3) + FACTOR @ FACTOR.T)
    for family in (low_rank(SIZES), low_rank(0.0, 0.02), low_rank(SIZES, -0.02)):
        seen = measured(exact.log_prob, family, 4096)
        expected = float(dlrd.kl(family, exact))
        assert abs(seen.gap - expected) < 3 * seen.gap_error + 2 * 0.05 * expected


def test_gap_of_a_displaced_sparse_normal_is_the_divergence() -> None:
    """The mean's part exactly, the precision's by its images A x of 32 random vectors.

    The mean of ‖A x‖² is ‖A‖², its variance 2 ‖AᵀA‖².
    """
    exact = centered(np.linalg.inv(CHAIN))
    seen = measured(exact.log_prob, sparse(SIZES), MIN_DRAWS)
    np.testing.assert_allclose(seen.gap, float(dlrd.kl(sparse(SIZES), exact)), rtol=1e-10)
    family = sparse(0.0, 0.02)
    seen = measured(exact.log_prob, family, 4096)
    root = np.linalg.cholesky(family.precision.toarray())
    change = np.linalg.solve(root, np.linalg.solve(root, CHAIN).T) - np.eye(3)
    spread = np.sqrt(2 / NUM_SKETCHES) * np.linalg.norm(change @ change) / np.linalg.norm(change) ** 2
    expected = float(dlrd.kl(family, exact))
    assert abs(seen.gap - expected) < 3 * seen.gap_error + (4 * spread + 2 * 0.05) * expected


@pytest.mark.parametrize("make", [full_rank, mean_field])
def test_no_gap_at_the_optimum(make: Callable[[float], dlrd.FullRankNormal | Curved]) -> None:
    seen = measured(normal, make(0.0), MIN_DRAWS)
    assert abs(seen.gap) < 1e-25
    assert seen.gap_bound < 1e-25


@pytest.mark.parametrize(
    ("make", "covariance"),
    [(full_rank, COVARIANCE), (mean_field, COVARIANCE), (low_rank, np.eye(3) + FACTOR @ FACTOR.T)],
    ids=["full rank", "mean-field", "low rank"],
)
def test_gain_is_the_slope_of_the_elbo_along_the_way(
    make: Callable[..., dlrd.FullRankNormal | Curved | dlrd.LowRankNormal], covariance: np.ndarray
) -> None:
    exact = centered(covariance)
    before, now = make(0.3, 0.2), make(0.2, 0.1)
    members = [member_of(family) for family in (before, now)]
    way = jax.tree.map(lambda old, new: new - old, *members)
    _, slope = jax.jvp(lambda family: -dlrd.kl(family, exact), (members[1],), (way,))
    seen = measured(exact.log_prob, now, 4096, came_from=before)
    assert float(slope) > 0.02  # uphill
    assert abs(seen.gain - float(slope)) < 4 * seen.gain_error + 1e-12
    assert seen.gain <= seen.gain_bound < 2 * float(slope)
    assert measured(exact.log_prob, now, MIN_DRAWS).gain == 0  # from nowhere else


def test_elbo_is_the_evidence_less_the_divergence() -> None:
    exact = dlrd.FullRankNormal(np.zeros(3), ROOT)
    for family, member in ((full_rank(0.3, 0.2),) * 2, (mean_field(0.3), mean_field(0.3).member)):
        seen = measured(normal, family, 4096)
        assert 0 < seen.elbo_error < 0.1
        assert abs(seen.elbo + float(dlrd.kl(member, exact))) < 4 * seen.elbo_error
        np.testing.assert_allclose(np.mean(seen.log_ratios), seen.elbo)
    assert measured(normal, full_rank(0.0), MIN_DRAWS).elbo_error < 1e-12


def quartic(z: jax.Array) -> jax.Array:
    return -0.5 * jnp.sum(z**2) - jnp.sum(z**4) + 0.1 * z[0] ** 3 * z[1] ** 2


@pytest.fixture(scope="module")
def quartic_certificates() -> list[Certificate]:
    with jax.enable_x64(True):
        return [
            measured(quartic, dlrd.FullRankNormal.standard(3), MIN_DRAWS, jax.random.key(i))
            for i in range(60)
        ]


def test_gap_has_no_bias_and_an_honest_error(quartic_certificates: list[Certificate]) -> None:
    """The exact gradient at N(0, I): E ∇ log p for the mean, ½ (E ε ∇ log p + 1) on the diagonal."""
    # E ε₁ ∂₁ = −1 − 12 E ε⁴/3 = −13 for each; the cubic term is odd and gives E ∂₁ = 0.3 E ε₁² ε₂² = 0.3.
    exact = 0.5 * (0.3**2 + 3 * 2 * (0.5 * (-13 + 1)) ** 2)
    gaps = np.array([seen.gap for seen in quartic_certificates])
    spread = np.std(gaps, ddof=1)
    assert abs(np.mean(gaps) - exact) < 4 * spread / np.sqrt(len(gaps))
    # The spread of 60 numbers is known to 9 %, the error of a single certificate, from 8 blocks, to 27 %.
    typical = np.sqrt(np.mean([seen.gap_error**2 for seen in quartic_certificates]))
    assert 0.7 < typical / spread < 1.4


def test_square_of_the_mean_gradient_would_be_biased(quartic_certificates: list[Certificate]) -> None:
    """What the products of different blocks are for."""
    squares = []
    for seen in quartic_certificates:
        assert seen.gradients is not None
        squares.append(0.5 * np.sum(np.mean(seen.gradients, axis=0) ** 2))
    excesses = np.array(squares) - [seen.gap for seen in quartic_certificates]
    assert np.mean(excesses) > 4 * np.std(excesses) / np.sqrt(len(excesses))


@pytest.mark.parametrize(
    "family", [full_rank(0.1, 0.05), mean_field(0.1, 0.05)], ids=["full-rank", "mean-field"]
)
def test_a_correction_leaves_the_gap_that_it_foresees(family: dlrd.FullRankNormal | Curved) -> None:
    """Over many certificates, in the mean."""
    exact = dlrd.FullRankNormal(np.zeros(3), ROOT)
    best = (
        0.0 if isinstance(family, dlrd.FullRankNormal) else float(dlrd.kl(member_of(mean_field(0.0)), exact))
    )
    foreseen, left = [], []
    for seed in range(40):
        seen = measured(normal, family, MIN_DRAWS, jax.random.key(seed))
        better = correction(family, seen)
        foreseen.append(seen.corrected_gap)
        left.append(float(dlrd.kl(member_of(better), exact)) - best)
    before = float(dlrd.kl(member_of(family), exact)) - best
    assert np.mean(left) < 0.5 * before
    difference = np.array(left) - foreseen
    error = np.std(difference, ddof=1) / np.sqrt(len(difference))
    # Newton's step is right to the first order: what is left of the displacement is of the second.
    assert abs(np.mean(difference)) < 4 * error + 0.1 * before


def test_what_a_correction_fails_to_gain_is_part_of_its_gap() -> None:
    """Of normals, the ELBO is known: a certificate that has misled shows by as much as it has."""
    model, family = FunctionModel(normal, DIM), full_rank(0.1, 0.05)
    exact = dlrd.FullRankNormal(np.zeros(3), ROOT)
    seen = measured(normal, family, MIN_DRAWS)
    assert seen.gradients is not None
    better = correction(family, seen)
    after = confirmed(model, (family, better), KEY, seen, 4 * MIN_DRAWS)
    assert after.num_draws == 4 * MIN_DRAWS
    assert seen.corrected_gap <= after.gap < seen.corrected_gap + 3 * after.gap_error
    assert after.gap_error >= seen.corrected_error
    misled = correction(family, seen._replace(gradients=-seen.gradients))
    gap, error = confirmed(model, (family, misled), KEY, seen, 4 * MIN_DRAWS)[3:5]
    assert abs(gap - seen.corrected_gap - float(dlrd.kl(misled, exact) - dlrd.kl(better, exact))) < 4 * error
    nowhere = FunctionModel(lambda z: -jnp.inf * z[0] ** 2, DIM)
    assert confirmed(nowhere, (family, better), KEY, seen, MIN_DRAWS).gap == np.inf


def test_a_correction_takes_of_the_gradient_what_is_no_noise(certificate: Callable[..., Certificate]) -> None:
    seen = certificate(gap=0.003, noise=0.001)
    assert (seen.correction, seen.corrected_gap) == (0.75, 0.75 * 0.001)
    assert certificate(gap=-0.003, noise=0.001).correction == 0
    assert certificate(gap=0.0, noise=0.0).correction == 0
    assert np.isnan(certificate(gap=0.003).corrected_gap)


def test_noise_is_what_a_mean_of_blocks_has_beyond_the_gap(quartic_certificates: list[Certificate]) -> None:
    for seen in quartic_certificates:
        assert seen.gradients is not None
        square = 0.5 * np.sum(np.mean(seen.gradients, axis=0) ** 2)
        np.testing.assert_allclose(seen.gap + seen.noise, square)


@pytest.mark.parametrize("log_density", [normal, quartic])
def test_longer_certificate_equals_one_long_one(log_density: Callable[[jax.Array], jax.Array]) -> None:
    family = full_rank(0.3, 0.2)
    short = measured(log_density, family, 2 * MIN_DRAWS)
    longer = measured(log_density, family, 6 * MIN_DRAWS, shorter=short)
    whole = measured(log_density, family, 6 * MIN_DRAWS)
    assert longer.num_draws == whole.num_draws == 6 * MIN_DRAWS
    np.testing.assert_array_equal(np.sort(longer.log_ratios), np.sort(whole.log_ratios))
    np.testing.assert_array_equal(longer.log_ratios[: short.num_draws], short.log_ratios)
    assert longer.gradients is not None
    np.testing.assert_allclose(longer.gradients, whole.gradients, rtol=1e-12, atol=1e-13)
    for name in ("elbo", "elbo_error", "gap", "gap_error", "share_bad"):
        np.testing.assert_allclose(getattr(longer, name), getattr(whole, name), rtol=1e-9)


def test_draws_are_counted_in_full_blocks() -> None:
    assert measured(normal, full_rank(0.0), 1).num_draws == MIN_DRAWS
    assert measured(normal, full_rank(0.0), MIN_DRAWS + 1).num_draws == 2 * MIN_DRAWS


def test_share_of_bad_draws() -> None:
    """Mirror images: of each pair, one is behind the wall."""

    def walled(z: jax.Array) -> jax.Array:
        return jnp.where(z[0] > 0, -0.5 * jnp.sum(z**2), -jnp.inf)

    seen = measured(walled, dlrd.FullRankNormal.standard(3), MIN_DRAWS)
    assert seen.share_bad == 0.5
    np.testing.assert_allclose(seen.elbo, 1.5 * np.log(2 * np.pi))
    assert np.isfinite(seen.gap)


def test_no_good_draw_at_all() -> None:
    seen = measured(lambda z: -jnp.inf + 0 * z[0], dlrd.FullRankNormal.standard(3), MIN_DRAWS)
    assert seen.share_bad == 1
    assert seen.elbo == -np.inf
    assert seen.elbo_error == np.inf


def test_gradients_beyond_all_bounds_are_an_infinite_gap() -> None:
    seen = measured(lambda z: -1e200 * jnp.sum(z**2), dlrd.FullRankNormal.standard(3), MIN_DRAWS)
    assert seen.gap == np.inf
    assert seen.gap_bound == np.inf


def test_families_without_a_known_gap() -> None:
    """A mean-field normal with a curvature that leaves directions out is one of them."""
    part = LowRankCurvature(np.ones(3), np.zeros((3, 0)), np.zeros(0))
    mixture = dlrd.Mixture([dlrd.MeanFieldNormal.standard(3), dlrd.MeanFieldNormal(np.ones(3), np.zeros(3))])
    for family in (Curved(dlrd.MeanFieldNormal.standard(3), part), mixture):
        seen = measured(normal, family, MIN_DRAWS)
        assert np.isnan(seen.gap)
        assert np.isfinite(seen.elbo)


def test_improvement_is_the_difference_of_the_elbos() -> None:
    exact = dlrd.FullRankNormal(np.zeros(3), ROOT)
    old, new = full_rank(0.5, 0.3), full_rank(0.1, 0.1)
    expected = float(dlrd.kl(old, exact) - dlrd.kl(new, exact))
    gain, error = improved(normal, old, new, 4096)
    assert 0 < error < 0.05
    assert abs(gain - expected) < 4 * error
    back, same_error = improved(normal, new, old, 4096)
    np.testing.assert_allclose([back, same_error], [-gain, error])
    assert improved(normal, old, old, 64) == (0, 0)


def test_improvement_where_nothing_is_finite() -> None:
    gain, error = improved(lambda z: -jnp.inf + 0 * z[0], full_rank(0.0), full_rank(0.1), 64)
    assert np.isnan(gain)
    assert error == np.inf


def test_flat_ways_add_to_the_gap_what_their_metric_says() -> None:
    """The metric is I + f fᵀ: along f, the gap is (1 + ‖f‖²) times what it is in the family's own."""
    family = mean_field(SIZES, -SIZES)
    seen = measured(quartic, family, MIN_DRAWS)
    assert seen.gradients is not None
    mean = np.mean(seen.gradients, axis=0)
    way = 3 * mean[None] / np.linalg.norm(mean)
    known = with_ways(seen, family, family, way)
    assert known.flat_ways is way
    np.testing.assert_allclose(known.gap, seen.gap + known.flat_gap)
    np.testing.assert_allclose(known.flat_gap + known.flat_noise, 4.5 * mean @ mean)
    assert known.flat_bound > known.flat_gap
    assert known.gap_error > seen.gap_error
    assert (known.noise, known.corrected_error) == (seen.noise, seen.corrected_error)
    np.testing.assert_allclose(known.correction, seen.correction)
    np.testing.assert_allclose(known.corrected_gap, seen.corrected_gap + known.flat_noise)
    np.testing.assert_allclose(known.flat_step, 9 * mean)
    moved, plain = (correction(family, each) for each in (known, seen))
    np.testing.assert_allclose(moved.displacement(plain), 9 * mean, atol=1e-12)
    # A longer one of the same family knows them, too.
    longer = measured(quartic, family, 2 * MIN_DRAWS, shorter=known)
    assert longer.flat_ways is way
    assert longer.flat_gap != 0.0
