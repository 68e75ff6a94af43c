"""How the ELBO bends around a family: the ways along which it is flatter than the family's own metric says.

Where a scale can change together with all that it is the scale of, the ELBO hardly feels it: along such a way
it may bend fifty times less than the metric says. The gradient is then as small, and the gap, ½ gᵀ K⁻¹ g with
the Hessian −K of the ELBO, as much larger than ½ ‖g‖². There are few such ways, one for each scale of a
hierarchy; in all other directions K is about the identity. So a few products with K find them, by the method
of Lanczos from the gradient, and from few draws, for what a draw says of a flat way has little noise, too.
"""

import numpy as np
from jaxtyping import Array, Float, Key

from dlrd.families import Charted
from dlrd.fitting.automatic.judge.look import BATCH, look
from dlrd.models import Model

MIN_PRODUCTS, MAX_PRODUCTS = 3, 6
"""With K; between these, as many as it takes until the flattest way is known."""
SHARE_UNKNOWN = 0.1
"""Of the flattest way's bend, by which it may be too large."""
NUM_DRAWS = 2 * BATCH
"""Behind each gradient, of which a product takes two."""
LENGTH = 0.03
"""Between a family and those whose gradients are compared, in the metric: all else than the bend cancels."""
MIN_REST = 1e-4
"""Of a product: less is rounding, and the ways so far are all."""
MIN_BEND = 1e-3
"""Below, and where the ELBO bends upwards, a way counts as that flat."""
PRODUCT_COST = 2 * NUM_DRAWS
"""In gradients."""


def flat_ways(
    model: Model,
    family: Charted,
    key: Key[Array, ""],
    gradient: Float[np.ndarray, " coordinate"],
    move: Float[np.ndarray, " coordinate"],
) -> tuple[Float[np.ndarray, "way coordinate"] | None, int]:
    """Rows f such that K⁻¹ ≈ I + Σ f fᵀ; None where gradients around the family are not finite.

    Args:
        model: what is fitted.
        family: around which the ELBO bends.
        key: of the draws, the same for all gradients.
        gradient: as measured there: a way across it does not count.
        move: that has led there, for fits are slow along flat ways; both together are what is begun with.

    Returns:
        The rows, and how many products with K it took.
    """
    with np.errstate(invalid="ignore"):
        rest = np.sum([each / np.linalg.norm(each) for each in (gradient, move)], axis=0)
    size = float(np.linalg.norm(rest))
    if not np.isfinite(size):
        return None, 0
    basis, images = np.zeros((0, len(rest))), np.zeros((0, len(rest)))
    while True:
        basis = np.concatenate([basis, rest[None] / size])
        images = np.concatenate([images, _image(model, family, key, basis[-1])[None]])
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
    model: Model, family: Charted, key: Key[Array, ""], way: Float[np.ndarray, " coordinate"]
) -> Float[np.ndarray, " coordinate"]:
    """K times a way of length one."""
    before, behind = (_gradient(model, family.corrected(each * way), key) for each in (-LENGTH, LENGTH))
    return (before - behind) / (2 * LENGTH)


def _gradient(model: Model, family: Charted, key: Key[Array, ""]) -> Float[np.ndarray, " coordinate"]:
    seen = look(model, family, key, 0, num_blocks=NUM_DRAWS // BATCH)
    assert seen.gradients is not None
    return np.mean(seen.gradients, axis=0)
