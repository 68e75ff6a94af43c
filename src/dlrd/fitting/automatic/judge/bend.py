"""How the ELBO bends around a family: the ways along which it is flatter than the family's own metric says.

Where a scale can change together with all that it is the scale of, the ELBO hardly feels it: along such a way
it may bend forty times less than the metric says. The gradient is then as small, and the gap, ½ gᵀ K⁻¹ g with
the Hessian −K of the ELBO, as much larger than ½ ‖g‖². There are few such ways, one for each scale of a
hierarchy; in all other directions K is about the identity. So a few products with K find them, by the method
of Lanczos from the gradient, and from few draws, for what a draw says of a flat way has little noise, too.
"""

import numpy as np
from jaxtyping import Array, Float, Key

from dlrd.families import Charted
from dlrd.fitting.automatic.judge.look import BATCH, NUM_BLOCKS, look
from dlrd.models import Model

MIN_PRODUCTS, MAX_PRODUCTS = 3, 6
"""With K; between these, as many as it takes until the flattest way is known."""
SHARE_UNKNOWN = 0.1
"""Of the flattest way's bend, by which it may be too large."""
MIN_DRAWS_EACH, SHARE_DRAWS = 2 * BATCH, 1 / 8
"""Behind each gradient, of which a product takes two: the more, the surer the certificate is to be."""
LENGTH = 0.03
"""From a family to each of the two whose gradients are compared, in the metric: all but the bend cancels."""
MIN_REST = 1e-4
"""Of a product: less is rounding, and the ways so far are all."""
MIN_BEND = 1e-3
"""Below, and where the ELBO bends upwards, a way counts as that flat."""


def num_draws_for(num_draws: int) -> int:
    """Behind each gradient, for a certificate with so many draws."""
    return max(round(SHARE_DRAWS * num_draws) // MIN_DRAWS_EACH, 1) * MIN_DRAWS_EACH


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def flat_ways(
    model: Model,
    family: Charted,
    key: Key[Array, ""],
    gradient: Float[np.ndarray, " coordinate"],
    move: Float[np.ndarray, " coordinate"],
    num_draws: int,
) -> tuple[Float[np.ndarray, "way coordinate"] | None, int]:
    """Rows f such that K⁻¹ ≈ I + Σ f fᵀ; None where gradients around the family are not finite.

    Args:
        model: what is fitted.
        family: around which the ELBO bends.
        key: of the draws, the same for all gradients.
        gradient: as measured there: a way across it does not count.
        move: that has led there, for fits are slow along flat ways; both together are what is begun with.
        num_draws: of each of the two gradients behind a product, as `num_draws_for` tells.

    Returns:
        The rows, and how many products with K it took.
    """
    rest = np.sum([each / np.linalg.norm(each) for each in (gradient, move)], axis=0)
    size = float(np.linalg.norm(rest))
    if not np.isfinite(size):
        return None, 0
    basis, images = np.zeros((0, len(rest))), np.zeros((0, len(rest)))
    while True:
        basis = np.concatenate([basis, rest[None] / size])
        images = np.concatenate([images, _image(model, family, key, basis[-1], num_draws)[None]])
        if not np.isfinite(images).all():
            return None, len(basis)
        products = basis @ images.T
        bends, rotation = np.linalg.eigh(0.5 * (products + products.T))
        # By so much, squared, the bend of the flattest way may be too large: the others' are about one.
        missing = rotation[:, 0] @ images - bends[0] * (rotation[:, 0] @ basis)
        rest = images[-1] - basis.T @ (basis @ images[-1])
        rest -= basis.T @ (basis @ rest)
        size = float(np.linalg.norm(rest))
        is_known = missing @ missing <= SHARE_UNKNOWN * max(bends[0], MIN_BEND)
        if (is_known and len(basis) >= MIN_PRODUCTS) or len(basis) == MAX_PRODUCTS or size < MIN_REST:
            break
    is_flat = bends < 1
    lengths = np.sqrt(1 / np.maximum(bends[is_flat], MIN_BEND) - 1)
    return lengths[:, None] * (rotation.T[is_flat] @ basis), len(basis)


def _image(
    model: Model, family: Charted, key: Key[Array, ""], way: Float[np.ndarray, " coordinate"], num_draws: int
) -> Float[np.ndarray, " coordinate"]:
    """K times a way of length one."""
    before, behind = (
        _gradient(model, family.corrected(each * way), key, num_draws) for each in (-LENGTH, LENGTH)
    )
    return (before - behind) / (2 * LENGTH)


def _gradient(
    model: Model, family: Charted, key: Key[Array, ""], num_draws: int
) -> Float[np.ndarray, " coordinate"]:
    num_blocks, parts = num_draws // BATCH, []
    for index in range(-(-num_blocks // NUM_BLOCKS)):
        seen = look(model, family, key, index, min(num_blocks - index * NUM_BLOCKS, NUM_BLOCKS))
        assert seen.gradients is not None
        parts.append(seen.gradients)
    return np.mean(np.concatenate(parts), axis=0)
