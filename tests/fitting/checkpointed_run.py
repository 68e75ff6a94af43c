"""A fit with a checkpoint in the folder argv[1], saved to argv[2]: to be killed by a test."""

import sys
import time

import jax
import jax.numpy as jnp
import optax

import dlrd
from dlrd.fitting import checkpoint, loop


def slow_normal(z: jax.Array) -> jax.Array:
    """A millisecond a draw, so that the run lasts long enough to be killed several times."""

    def waited(value: jax.Array) -> jax.Array:
        time.sleep(0.001)
        return value

    # Of the draw: what does not depend on it would be called once for a whole chunk.
    first = jax.lax.stop_gradient(z[0])
    slow = jax.pure_callback(waited, jax.ShapeDtypeStruct((), z.dtype), first, vmap_method="sequential")
    return -0.5 * jnp.sum((z - 3.0) ** 2) + 0 * slow


def main() -> None:
    checkpoint.SECONDS_BETWEEN = 0.0  # after every chunk
    checkpoint.MAX_SHARE = float("inf")
    loop.CHUNK_SECONDS = 0.01
    dlrd.fit(
        slow_normal,
        dlrd.MeanFieldNormal.standard(3),
        key=0,
        optimizer=optax.chain(optax.scale_by_adam(), dlrd.dynamic_decay(1e-1)),
        steps=400,
        num_draws=2,
        gradient=dlrd.score_function,
        checkpoint=sys.argv[1],
        progress=False,
    ).save(sys.argv[2])


if __name__ == "__main__":
    main()
