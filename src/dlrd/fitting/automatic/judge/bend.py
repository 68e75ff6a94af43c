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

NUM_WAYS = 4
"""Products with K, and at the most so many ways."""
NUM_DRAWS = 2 * BATCH
"""Behind each gradient, of which a product takes two."""
LENGTH = 0.03
"""Between a family and those whose gradients are compared, in the metric: all else than the bend cancels."""
MIN_BEND = 1e-3
"""Below, and where the ELBO bends upwards, a way counts as that flat."""
PROBING_COST = 2 * NUM_WAYS * NUM_DRAWS
"""In gradients."""


def flat_ways(
    model: Model, family: Charted, key: Key[Array, ""], gradient: Float[np.ndarray, " coordinate"]
) -> Float[np.ndarray, "way coordinate"] | None:
    """Rows f such that K⁻¹ ≈ I + Σ f fᵀ; None where gradients around the family are not finite.

    Args:
        model: what is fitted.
        family: around which the ELBO bends.
        key: of the draws, the same for all gradients.
        gradient: as measured there; where it is without noise, it alone tells which ways count.
    """
    size = float(np.linalg.norm(gradient))
    if not (np.isfinite(size) and size > 0):
        return None
    ways, images = [gradient / size], []
    while True:
        step = LENGTH * ways[-1]
        behind, before = (_gradient(model, family.corrected(each), key) for each in (-step, step))
        images.append((behind - before) / (2 * LENGTH))
        if not np.isfinite(images[-1]).all():
            return None
        basis = np.stack(ways)
        rest = images[-1] - basis.T @ (basis @ images[-1])
        rest -= basis.T @ (basis @ rest)
        size = float(np.linalg.norm(rest))
        if len(ways) == min(NUM_WAYS, len(gradient)) or size < np.finfo(np.float32).eps:
            break
        ways.append(rest / size)
    products = basis @ np.stack(images).T
    bends, rotation = np.linalg.eigh(0.5 * (products + products.T))
    is_flat = bends < 1
    lengths = np.sqrt(1 / np.maximum(bends[is_flat], MIN_BEND) - 1)
    return lengths[:, None] * (rotation.T[is_flat] @ basis)


def _gradient(model: Model, family: Charted, key: Key[Array, ""]) -> Float[np.ndarray, " coordinate"]:
    seen = look(model, family, key, 0, num_blocks=NUM_DRAWS // BATCH)
    assert seen.gradients is not None
    return np.mean(seen.gradients, axis=0)
