"""A family that no line of the package knows: started, certified, strided, checkpointed, loaded."""

import pathlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dlrd
from dlrd.families import Certifiable, Startable
from dlrd.fitting.automatic.fit import fit_automatically
from dlrd.fitting.automatic.plan import Plan
from dlrd.fitting.request import Aim, Request, Sampling, Stepping, Watching

AssertSame = Callable[[dlrd.Fit, dlrd.Fit], None]
DIM = 3


class RoundNormal(eqx.Module):
    """N(μ, σ² I): one standard deviation for all coordinates."""

    needs_whole_curvature: ClassVar[bool] = False
    richer: ClassVar[str] = "one with a scale for each coordinate"
    calls: ClassVar[Counter[str]] = Counter()
    loc: jax.Array
    log_scale: jax.Array

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        return self.from_noise(jax.random.normal(key, (*sample_shape, len(self.loc)), self.loc.dtype))

    def log_prob(self, x: jax.Array) -> jax.Array:
        noise = (x - self.loc) * jnp.exp(-self.log_scale)
        constant = len(self.loc) * (self.log_scale + 0.5 * jnp.log(2 * jnp.pi))
        return -0.5 * jnp.sum(noise**2, axis=-1) - constant

    @property
    def mean(self) -> jax.Array:
        return self.loc

    @property
    def noise_size(self) -> int:
        return len(self.loc)

    def sample_noise(self, key: jax.Array, num_draws: int) -> jax.Array:
        return jax.random.normal(key, (num_draws, len(self.loc)), self.loc.dtype)

    def from_noise(self, noise: jax.Array) -> jax.Array:
        return self.loc + jnp.exp(self.log_scale) * noise

    def natural_gradient(self, slopes: jax.Array, noise: jax.Array) -> "RoundNormal":
        """The information is 1 for μ/σ, and 2 for log σ in each coordinate."""
        residual = jnp.exp(self.log_scale) * slopes + noise
        return RoundNormal(jnp.mean(residual, axis=0), 0.5 * jnp.mean(residual * noise))

    def moved(self, step: "RoundNormal") -> "RoundNormal":
        shift, stretch = jnp.clip(step.loc, -0.5, 0.5), jnp.clip(step.log_scale, -0.5, 0.5)
        return RoundNormal(self.loc + jnp.exp(self.log_scale) * shift, self.log_scale + stretch)

    def at_mode(self, point: np.ndarray, curvature: Any) -> "RoundNormal":
        self.calls["at_mode"] += 1
        log_scale = -0.5 * np.log(np.mean(curvature.diagonal))
        return RoundNormal(jnp.asarray(point, self.loc.dtype), jnp.asarray(log_scale, self.loc.dtype))

    def as_start(self) -> "RoundNormal":
        return self

    def fisher_coordinates(self, gradient: "RoundNormal") -> jax.Array:
        return jnp.append(gradient.loc, jnp.sqrt(2.0 * len(self.loc)) * gradient.log_scale)

    def inner_products(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return left @ right.T

    def displacement(self, before: "RoundNormal") -> np.ndarray:
        shift = np.asarray((self.loc - before.loc) * jnp.exp(-self.log_scale), float)
        stretch = float(self.log_scale - before.log_scale)
        return np.append(shift, np.sqrt(2.0 * len(self.loc)) * stretch)

    def extrapolated(self, before: "RoundNormal", length: float) -> "RoundNormal":
        self.calls["extrapolated"] += 1
        return jax.tree.map(lambda here, there: here + length * (here - there), self, before)


def log_gammas(z: jax.Array) -> jax.Array:
    """Independent and alike, so that one scale is enough."""
    return jnp.sum(z - jnp.exp(z))


def elbo(family: RoundNormal) -> float:
    """In closed form; the best has σ = 1 and μ = −½."""
    loc, scale = np.asarray(family.loc, float), float(jnp.exp(family.log_scale))
    entropy = len(loc) * (np.log(scale) + 0.5 * np.log(2 * np.pi * np.e))
    return float(np.sum(loc - np.exp(loc + scale**2 / 2))) + entropy


BEST = elbo(RoundNormal(jnp.full(DIM, -0.5), jnp.asarray(0.0)))


def standard(loc: float = 0.0, log_scale: float = 0.0) -> RoundNormal:
    return RoundNormal(jnp.full(DIM, loc), jnp.asarray(log_scale))


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    RoundNormal.calls.clear()
    with jax.enable_x64(True):
        yield


def fit(folder: pathlib.Path | None = None, **changed: Any) -> dlrd.Fit:
    return dlrd.fit(log_gammas, standard(), checkpoint=folder, progress=False, **changed)


def test_it_has_the_capabilities() -> None:
    assert isinstance(standard(), Startable)
    assert isinstance(standard(), Certifiable)


def test_started_certified_and_right() -> None:
    found = fit()
    assert RoundNormal.calls["at_mode"] == 1
    assert found.outcome is dlrd.Outcome.CERTIFIED
    assert isinstance(found.family, RoundNormal)
    assert 0 <= BEST - elbo(found.family) < 0.01
    assert found.verdict is not None
    assert abs(found.elbo - elbo(found.family)) < 4 * found.elbo_error
    assert found.verdict.gradients["start"] > 0


def test_strided() -> None:
    """From far away and narrow: steps of half a standard deviation would take for ever."""
    model = dlrd.models.function(log_gammas, DIM)
    request = Request(Aim(), Stepping(), Sampling(), Watching(progress=False))
    start = standard(-30.0, -3.0)
    found = fit_automatically(model, start, jax.random.key(0), request, Plan(has_start=False))
    assert RoundNormal.calls["at_mode"] == 0
    assert RoundNormal.calls["extrapolated"] > 0
    assert found.outcome is dlrd.Outcome.CERTIFIED
    assert isinstance(found.family, RoundNormal)
    assert 0 <= BEST - elbo(found.family) < 0.01


def test_checkpointed_and_resumed(tmp_path: pathlib.Path) -> None:
    """Certificates depend on the tolerance, and steps on neither."""
    whole = fit(tolerance=1e-4)
    first = fit(tmp_path, tolerance=1e-1)
    assert first.num_steps < whole.num_steps
    second = fit(tmp_path, tolerance=1e-4)
    assert second.num_steps == whole.num_steps
    for left, right in zip(jax.tree.leaves(second.family), jax.tree.leaves(whole.family), strict=True):
        np.testing.assert_array_equal(left, right)


def test_saved_and_loaded(tmp_path: pathlib.Path, assert_same_fit: AssertSame) -> None:
    found = fit()
    found.save(tmp_path / "fit.dlrd")
    assert_same_fit(dlrd.load(tmp_path / "fit.dlrd", family=standard()), found)
    with pytest.raises(ValueError, match="RoundNormal, which dlrd does not know"):
        dlrd.load(tmp_path / "fit.dlrd")


def test_advice_is_its_own() -> None:
    """Where coordinates differ by a factor of thirty, one scale is too few."""
    scales = jnp.asarray([0.1, 1.0, 3.0])
    found = dlrd.fit(
        lambda z: -0.5 * jnp.sum((z / scales) ** 2), standard(), progress=False, max_gradients=4000
    )
    assert found.verdict is not None
    assert any("try one with a scale for each coordinate" in each for each in found.verdict.warnings)
