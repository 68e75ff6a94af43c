"""The geometry of normals with a sparse precision Λ = T Tᵀ: its changes, all in the order of elimination."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dlrd.families._limits import limited_stretch
from dlrd.families.elimination import Elimination, Values

NUM_SKETCHES, NUM_IN_MANY, MANY = 32, 8, 5_000
"""Random directions in which a change of the precision is measured, and how many in many dimensions."""
MIN_SHRINKAGE = 0.2
"""Of a conditional precision in one step."""
NUM_TRIALS = 8
"""Of ever smaller steps, until the precision is positive definite."""


def stein_change(
    elimination: Elimination, residual: Float[Array, "draw dim"], scores: Float[Array, "draw dim"]
) -> Values:
    """E[−∇² log p] − Λ by Stein's identity: −E[h sᵀ], symmetrised, with h = ∇ log p + s, s = Λ (z − μ)."""
    rows, columns = elimination.rows, elimination.columns

    def added(lower: Array, draw: tuple[Array, Array]) -> tuple[Array, None]:
        h, s = draw
        return lower + h[rows] * s[columns] + h[columns] * s[rows], None

    # One draw after the other: all at once would take the memory of a matrix for each.
    total, _ = jax.lax.scan(added, jnp.zeros(len(rows), residual.dtype), (residual, scores))
    return -jnp.mean(residual * scores, axis=0), -0.5 * total / len(residual)


def changed_factor(elimination: Elimination, factor: Values, change: Values) -> Values:
    """The factor of Λ + Δ, or of as much of Δ as leaves it positive definite and no variance far larger."""
    old = elimination.product(*factor)

    def tried(size: Array) -> Values:
        return elimination.factorized(*(a + size * b for a, b in zip(old, change, strict=True)))

    def is_good(new: Values) -> Array:
        is_finite = jnp.all(jnp.isfinite(new[0])) & jnp.all(jnp.isfinite(new[1]))
        return is_finite & jnp.all(new[0] ** 2 > MIN_SHRINKAGE * factor[0] ** 2)

    def smaller(carry: tuple[Array, Values]) -> tuple[Array, Values]:
        size = 0.25 * carry[0]
        return size, tried(size)

    one = jnp.ones((), factor[0].dtype)
    _, new = jax.lax.while_loop(
        lambda carry: ~is_good(carry[1]) & (carry[0] > 0.25**NUM_TRIALS), smaller, (one, tried(one))
    )
    return jax.tree.map(lambda a, b: jnp.where(is_good(new), a, b), new, factor)


def sketched(elimination: Elimination, factor: Values, change: Values) -> Float[Array, " sketch_dim"]:
    """T⁻¹ Δ T⁻ᵀ / √2, the size of Δ in the Fisher metric, by its images of a few random vectors."""
    dim, dtype = elimination.dim, factor[0].dtype
    num = NUM_SKETCHES if dim <= MANY else NUM_IN_MANY
    draws = elimination.solve_upper(*factor, jax.random.normal(jax.random.key(0), (num, dim), dtype))
    twice = elimination.times_lower(*change, draws) + elimination.times_upper(*change, draws)
    images = twice - change[0] * draws  # the diagonal counts once
    return elimination.solve_lower(*factor, images).ravel() / (2 * num) ** 0.5


def further_factor(elimination: Elimination, before: Values, now: Values, length: float) -> Values:
    """Beyond `now`: conditional precisions change by factors, what coordinates depend on linearly."""
    columns = elimination.columns
    (old, old_lower), (new, new_lower) = (
        [np.asarray(part, float) for part in each] for each in (before, now)
    )
    slopes = new_lower / new[columns]
    further = slopes + length * (slopes - old_lower / old[columns])
    diagonal = new * np.exp(limited_stretch(length * np.log(np.abs(new / old))))
    dtype = now[0].dtype
    arrays = np.asarray(diagonal, dtype), np.asarray(further * diagonal[columns], dtype)
    return jax.device_put(arrays)


@eqx.filter_jit
def displaced(now: Any, before: Any) -> Float[Array, " coordinate"]:
    """The way from one sparse normal to another, in the second one's Fisher coordinates."""
    elimination = now.elimination
    shift = elimination.permuted(now.loc - before.loc)
    pair = (elimination.product(*each.factor) for each in (now, before))
    change = jax.tree.map(jnp.subtract, *pair)
    return jnp.concatenate(
        [elimination.times_upper(*now.factor, shift), sketched(elimination, now.factor, change)]
    )
