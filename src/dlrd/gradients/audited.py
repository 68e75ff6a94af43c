"""What the gradient of a model's stand-in misses, from values alone."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from dlrd.families import Certifiable
from dlrd.models import Audit


def missing_gradient(
    family: Certifiable, seen: Audit, noise: Float[Array, "draw noise"]
) -> Float[Array, " coordinate"] | None:
    r"""The natural gradient of $E[r]$, r being what a stand-in for log p misses, in Fisher's coordinates.

    It is $E[r ∇ \log q]$, with the derivatives in the parameters of q. For a normal the same comes out if
    $-(r - \bar r) ∇_z \log q(z)$ is taken for the gradient of r at each draw, which nobody knows: in the mean
    over the draws, and over their products with the noise (Stein's identity), where the mean of r must not
    count. The less r varies, the less noise there is.

    Args:
        family: a normal.
        seen: at its draws, the second half of which are mirror images of the first; failed ones are nan.
        noise: that gave the draws.
    """
    is_good = jnp.isfinite(seen.residuals)
    residuals = jnp.where(is_good, seen.residuals, 0)
    # The mean must not depend on the draw itself, nor on its mirror image.
    total, num = (_of_others(each) for each in (residuals, is_good.astype(residuals.dtype)))
    centered = jnp.where(is_good, residuals - total / jnp.maximum(num, 1), 0)
    weights = centered / jnp.maximum(jnp.mean(is_good, dtype=residuals.dtype), 1 / len(is_good))
    slopes = -weights[:, None] * jax.vmap(jax.grad(family.log_prob))(seen.draws)
    # The gradients of a family count its own entropy, too.
    found, own = (
        family.fisher_coordinates(family.natural_gradient(each, noise))
        for each in (slopes, jnp.zeros_like(slopes))
    )
    return None if found is None or own is None else found - own


def _of_others(values: Float[Array, " draw"]) -> Float[Array, " draw"]:
    """For each draw the sum over the others, without its mirror image."""
    return jnp.sum(values) - values - jnp.roll(values, len(values) // 2)
