"""Keys for all that an automatic fit draws beside its steps.

Made on the host: of `jax.random.fold_in` and `split`, each call by itself would be a program to compile.
"""

import jax
import numpy as np
from jaxtyping import Array, Key


def derived(key: Key[Array, ""], *path: int) -> Key[Array, ""]:
    """A key of its own for each path of numbers.

    Example:
        >>> first, second = (derived(jax.random.key(0), 1, number) for number in (2, 3))
        >>> bool(first == second), bool(first == derived(jax.random.key(0), 1, 2))
        (False, True)
    """
    return _keys(key, (), path)


def several(key: Key[Array, ""], num: int) -> Key[Array, " num"]:
    """So many keys."""
    return _keys(key, (num,), ())


def _keys(key: Key[Array, ""], shape: tuple[int, ...], path: tuple[int, ...]) -> Key[Array, "*shape"]:
    data = np.asarray(jax.random.key_data(key))
    sequence = np.random.SeedSequence(data.tolist(), spawn_key=path)
    words = sequence.generate_state(int(np.prod(shape)) * data.size, np.uint32)
    made = jax.device_put(words.reshape(*shape, *data.shape))
    return jax.random.wrap_key_data(made, impl=jax.random.key_impl(key))
