"""An automatic fit with a checkpoint in the folder argv[1], saved to argv[2]: to be killed by a test."""

import sys
import time

import jax
import jax.numpy as jnp

import dlrd
from dlrd.fitting import checkpoint, loop


def slow_log_gammas(z: jax.Array) -> jax.Array:
    """Skewed; a draw takes long enough for the run to be killed several times."""

    def waited(value: jax.Array) -> jax.Array:
        time.sleep(0.0001)
        return value

    # Of the draw: what does not depend on it would be called once for a whole chunk.
    first = jax.lax.stop_gradient(z[0])
    slow = jax.pure_callback(waited, jax.ShapeDtypeStruct((), z.dtype), first, vmap_method="sequential")
    return jnp.sum(z - jnp.exp(z)) - 0.5 * jnp.sum(z) ** 2 + 0 * slow


def main() -> None:
    checkpoint.SECONDS_BETWEEN = 0.0  # after every chunk
    checkpoint.MAX_SHARE = float("inf")
    loop.CHUNK_SECONDS = 0.01
    dlrd.fit(
        slow_log_gammas,
        dlrd.MeanFieldNormal.standard(3),
        key=0,
        tolerance=2e-4,
        checkpoint=sys.argv[1],
        progress=False,
    ).save(sys.argv[2])


if __name__ == "__main__":
    main()
