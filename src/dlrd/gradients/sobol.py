"""Draws from one Sobol sequence that goes on from step to step: far more even than independent ones."""

import functools
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, UInt32

from dlrd.families import SecondOrder, log_prob_of

LOG_LENGTH = 13
"""The sequence has 2¹³ points; then it begins again, shifted."""
MAX_SIZE = 21_201
"""Dimensions for which direction numbers are known."""
MAX_CHEAP = 1024
"""Dimensions for which the table is small beside what else a fit needs."""
NUM_BITS = 32
"""Of each number of a point."""
MAX_NUMBERS = 2**27
"""Of the table, half a gigabyte: in very many dimensions the sequence is shorter."""


class Driven(eqx.Module):
    """A family whose next draws are decided: those of `noise`."""

    family: Any  # `FromNoise`, and `Natural` for natural gradients
    noise: Float[Array, "num_draws noise"]

    def sample(self, key: Key[Array, ""], sample_shape: tuple[int, ...] = ()) -> Array:
        if sample_shape != self.noise.shape[:1]:
            raise ValueError(f"the noise is for {self.noise.shape[:1]} draws, asked for {sample_shape}")
        return self.family.from_noise(self.noise)

    def log_prob(self, x: Array) -> Array:
        return self.family.log_prob(x)

    def log_prob_of_noise(self, noise: Float[Array, "*batch noise"]) -> Array:
        return log_prob_of(self.family, noise, self.family.from_noise(noise))

    @property
    def noise_size(self) -> int:
        return self.family.noise_size

    def sample_noise(self, key: Key[Array, ""], num_draws: int) -> Float[Array, "num_draws noise"]:
        return self.noise

    def from_noise(self, noise: Float[Array, "*batch noise"]) -> Array:
        return self.family.from_noise(noise)

    def natural_gradient(
        self, slopes: Float[Array, "num_draws dim"], noise: Float[Array, "num_draws noise"], *products: Array
    ) -> "Driven":
        return Driven(self.family.natural_gradient(slopes, noise, *products), self.noise)

    @property
    def directions(self) -> Float[Array, "direction dim"] | None:
        return self.family.directions if isinstance(self.family, SecondOrder) else None

    def moved(self, step: "Driven") -> "Driven":
        return Driven(self.family.moved(step.family), self.noise)


def sobol_noise(
    key: Key[Array, ""], step: Int[Array, ""], num_draws: int, size: int, dtype: jnp.dtype
) -> Float[Array, "num_draws size"]:
    r"""The noise of a step: the next `num_draws` points of the sequence, as standard normals.

    Each time the sequence begins again, and for each key, its points are moved by a random digital shift. So
    every single draw is exactly standard normal, and any stretch of draws covers the space evenly.

    Args:
        key: of the run.
        step: counted from 0.
        num_draws: points a step.
        size: numbers a point.
        dtype: of the noise.
    """
    points = jnp.asarray(load_points(size))
    length = len(points)
    index = step.astype(jnp.uint32) * num_draws + jnp.arange(num_draws, dtype=jnp.uint32)
    rounds = index // length
    # The points of a step may be the last of one round and the first of the next.
    shifts = _shifts(key, rounds[0] + jnp.arange(2, dtype=jnp.uint32), size)
    words = points[index % length] ^ shifts[rounds - rounds[0]]
    return _normal(words, dtype)


def _shifts(key: Key[Array, ""], rounds: UInt32[Array, " round"], size: int) -> UInt32[Array, "round size"]:
    """Random words for each round of a key's sequence.

    A hash of both: the generator of `jax.random` takes XLA longer to compile than all else of a step's noise.
    """
    words = jnp.arange(1, size + 1, dtype=jnp.uint32) * jnp.uint32(0x9E3779B9)
    for word in (*jax.random.key_data(key).ravel(), rounds[:, None]):
        words = _mixed(words ^ _mixed(word + jnp.uint32(0x85EBCA6B)))
    return words


def _mixed(words: UInt32[Array, "..."]) -> UInt32[Array, "..."]:
    """One to one, every bit of the result depending on all: C. Wellons' hash "lowbias32"."""
    words = (words ^ (words >> 16)) * jnp.uint32(0x7FEB352D)
    words = (words ^ (words >> 15)) * jnp.uint32(0x846CA68B)
    return words ^ (words >> 16)


def _normal(words: UInt32[Array, "..."], dtype: jnp.dtype) -> Float[Array, "..."]:
    """Whole numbers, uniform on 32 bits, as standard normals by the inverse distribution function."""
    wide = jnp.promote_types(dtype, jnp.float32)
    num_bits = min(32, jnp.finfo(wide).nmant)  # with the half, as many as a float can hold
    centers = (words >> (32 - num_bits)).astype(wide) + jnp.asarray(0.5, wide)
    uniform = centers / 2.0 ** (num_bits - 1) - 1  # strictly between −1 and 1
    return (jnp.sqrt(jnp.asarray(2, wide)) * jax.lax.erf_inv(uniform)).astype(dtype)


@functools.lru_cache(maxsize=4)
def load_points(size: int) -> UInt32[np.ndarray, "point size"]:
    """The scrambled Sobol sequence; the scrambling is always the same, the shifts are not."""
    if size > MAX_SIZE:
        raise ValueError(
            f'draws="sobol" must take at most {MAX_SIZE:,} random numbers a draw, got {size:,}; '
            'leave draws at "independent"'
        )
    log_length = min(LOG_LENGTH, (MAX_NUMBERS // size).bit_length() - 1)
    rng = np.random.default_rng(0)
    if size <= MAX_CHEAP:
        return scrambled(_directions()[:size, :log_length], rng)
    from scipy.stats import qmc  # here, as it takes longer to import than all of dlrd

    points = qmc.Sobol(size, bits=NUM_BITS, rng=rng).random_base2(log_length)
    return (points * 2.0**NUM_BITS).astype(np.uint32)


def scrambled(
    directions: UInt32[np.ndarray, "size log_length"], rng: np.random.Generator
) -> UInt32[np.ndarray, "point size"]:
    """All points that these directions span, scrambled as SciPy does it: by random matrices and a shift.

    Point n is the sum, modulo 2 and bit by bit, of the directions at which the Gray code of n has a one.
    """
    size = len(directions)
    rng = rng.spawn(1)[0]
    shift = _words(rng.integers(0, 2, (size, NUM_BITS), np.uint32)[:, ::-1])
    matrices = np.tril(rng.integers(0, 2, (size, NUM_BITS, NUM_BITS), np.uint32), -1)
    matrices += np.eye(NUM_BITS, dtype=np.uint32)
    highest_first = np.arange(NUM_BITS)[::-1]
    bits = (directions[..., None] >> highest_first.astype(np.uint32)) & np.uint32(1)
    columns = _words(bits @ matrices.transpose(0, 2, 1) & np.uint32(1)).T
    points = shift[None]
    for column in columns:
        points = np.concatenate([points, points[::-1] ^ column])
    return points


def _words(bits: UInt32[np.ndarray, "*batch bit"]) -> UInt32[np.ndarray, "*batch"]:
    """Whole numbers of bits, the highest first."""
    return bits @ (np.uint32(1) << np.arange(NUM_BITS, dtype=np.uint32)[::-1])


def _directions() -> UInt32[np.ndarray, "dimension direction"]:
    """Of the sequence by Joe and Kuo ("Constructing Sobol sequences with better two-dimensional projections",
    2008), the first `MAX_CHEAP` dimensions and `LOG_LENGTH` directions, in the highest bits.

    In a file of our own: `scipy.stats`, which knows them, takes longer to import than a fit takes.
    """
    directions = np.load(Path(__file__).with_name("sobol_directions.npy"))
    return directions.astype(np.uint32) << np.uint32(NUM_BITS - LOG_LENGTH)
