"""Back to NumPyro: what a fit has found, as a guide."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Float, Key
from numpyro.distributions import constraints
from numpyro.distributions.transforms import UnpackTransform
from numpyro.infer.autoguide import AutoContinuous

from dlrd.checks import shown
from dlrd.families import Family, FullRankNormal, LowRankNormal, MeanFieldNormal, Quantiled
from dlrd.fitting import Fit
from dlrd.models.from_numpyro import NumPyroModel

NUM_DRAWS = 10_000
"""That quantiles are taken from, of families that do not know them."""


class FittedGuide(AutoContinuous):
    """What `guide` gives: a NumPyro guide without parameters, since it is fitted already."""

    def __init__(self, model: NumPyroModel, family: Family):
        super().__init__(model.model)
        self.fitted = model
        self.family = family
        self.latent_dim = model.dim
        self.prototype_trace = model.trace(jnp.zeros(model.dim))
        self._unpack_latent = UnpackTransform(model.unraveled)

    def get_posterior(self, params: Any = None) -> dist.Distribution:
        """The fitted distribution of the unconstrained latent vector, as a NumPyro distribution."""
        return as_distribution(self.family, self.latent_dim)

    def sample_posterior(
        self,
        rng_key: Key[Array, ""],
        params: Any = None,
        *args: Any,
        sample_shape: tuple[int, ...] = (),
        **kwargs: Any,
    ) -> dict[str, Array]:
        """Draws of the latent and the deterministic sites."""
        return self._unpack_and_constrain(self.family.sample(_typed(rng_key), sample_shape), params)

    def median(self, params: Any = None) -> dict[str, Array]:
        """The sites at the medians of the unconstrained coordinates."""
        return {name: values[0] for name, values in self.quantiles(params, [0.5]).items()}

    def quantiles(self, params: Any, quantiles: Sequence[float]) -> dict[str, Array]:
        """The sites at the quantiles of the unconstrained coordinates, stacked in the first axis."""
        if isinstance(self.family, Quantiled):
            found = self.family.quantiles(quantiles)
        else:
            draws = self.family.sample(jax.random.key(0), (NUM_DRAWS,))
            found = jnp.quantile(draws, jnp.asarray(quantiles), axis=0)
        return self._unpack_and_constrain(jnp.asarray(found), params)

    def _get_posterior(self) -> dist.Distribution:
        return self.get_posterior()

    def _unpack_and_constrain(self, latent_sample: Array, params: Any) -> dict[str, Array]:
        sites = self.fitted.constrained(latent_sample.reshape(-1, self.latent_dim))
        batch = latent_sample.shape[:-1]
        return {name: values.reshape(batch + values.shape[1:]) for name, values in sites.items()}


class FamilyDistribution(dist.Distribution):
    """A family that NumPyro has no distribution for."""

    pytree_data_fields = ("family",)

    def __init__(self, family: Family, dim: int):
        self.family = family
        super().__init__(batch_shape=(), event_shape=(dim,))

    @property
    def support(self) -> constraints.Constraint:
        return constraints.real_vector

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Float[Array, "*sample_shape dim"]:
        return self.family.sample(_typed(key), sample_shape)

    def log_prob(self, value: Any, intermediates: Any = None) -> Float[Array, "*batch"]:
        return self.family.log_prob(value)


def guide(fit: Fit) -> FittedGuide:
    """A fit of a NumPyro model as a guide, for code that goes on after `SVI`.

    It has what the automatic guides of NumPyro have: `get_posterior(params)`, `sample_posterior(key, params,
    sample_shape=…)`, `median(params)`, `quantiles(params, …)`; and it can be handed to `Predictive` and to
    the ELBOs. The parameters are those of the fit: `params` may be anything, as {}.

    Args:
        fit: of a model from `dlrd.models.numpyro`, with any family.

    Example:
        >>> import dlrd, jax, jax.numpy as jnp, numpyro, numpyro.distributions as dist
        >>> def weights(y):
        ...     mean = numpyro.sample("mean", dist.Normal(0.0, 10.0))
        ...     numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)
        >>> y = jnp.array([2.1, 3.4, 2.9, 3.0])
        >>> fit = dlrd.fit(dlrd.models.numpyro(weights, y), progress=False)
        >>> guide = dlrd.numpyro.guide(fit)
        >>> guide.sample_posterior(jax.random.key(0), {}, sample_shape=(100,))["mean"].shape
        (100,)
        >>> predictive = numpyro.infer.Predictive(weights, guide=guide, params={}, num_samples=50)
        >>> predictive(jax.random.key(1), None)["y"].shape
        (50,)
    """
    if not isinstance(fit, Fit):
        raise TypeError(f"fit must be what dlrd.fit gives, got {shown(fit)}")
    if not isinstance(fit.model, NumPyroModel):
        raise ValueError(
            "fit must be of a model from dlrd.models.numpyro (one that was loaded is told it by "
            f"dlrd.load(path, model=…)), got a fit of {shown(fit.model)}"
        )
    return FittedGuide(fit.model, fit.family)


def as_distribution(family: Family, dim: int) -> dist.Distribution:
    """The family as a distribution of NumPyro's, where it has one; or else as one that draws from it."""
    if isinstance(family, MeanFieldNormal):
        return dist.Normal(family.mean, family.std).to_event(1)
    if isinstance(family, FullRankNormal):
        root = family.scale_tril
        # Columns of either sign give the same normal, and NumPyro wants the diagonal positive.
        return dist.MultivariateNormal(family.mean, scale_tril=root * jnp.sign(jnp.diagonal(root)))
    if isinstance(family, LowRankNormal):
        variance = jnp.exp(2 * family.log_scale)
        return dist.LowRankMultivariateNormal(family.mean, cov_factor=family.factor, cov_diag=variance)
    return FamilyDistribution(family, dim)


def _typed(key: Array) -> Key[Array, ""]:
    """NumPyro hands on keys as plain numbers, too, which flows do not take."""
    return key if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else jax.random.wrap_key_data(key)
