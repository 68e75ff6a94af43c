"""A weighted sum of families of one kind."""

import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Key

from dlrd.families._checks import float_array
from dlrd.families.protocol import Family, Stratified


class Mixture(eqx.Module):
    r"""A mixture of families of one kind, $\sum_k w_k q_k$ with $w = \mathrm{softmax}(\mathrm{logits})$.

    Its parameters are those of the components and the logits. Components that start at the same place have
    little that would part them: start them at different ones.

    Args:
        components: a list of the $q_k$: families of one type, with arrays of equal shapes.
        logits: a vector with an entry for each component; equal weights if left out.

    Example:
        >>> import dlrd
        >>> left, right = dlrd.MeanFieldNormal([-2.0], [0.0]), dlrd.MeanFieldNormal([4.0], [0.0])
        >>> q = dlrd.Mixture([left, right], [0.0, 0.0])
        >>> q.sample(jax.random.key(0), (5,)).shape
        (5, 1)
        >>> print(q.weights, q.mean, q.std)
        [0.5 0.5] [1.] [3.1622777]
    """

    components: Any  # one family, whose arrays have a leading axis of components
    logits: Float[Array, " num_components"]

    def __init__(self, components: Sequence[Family], logits: ArrayLike | None = None):
        self.components = _stacked(components)
        if logits is None:
            floats = jax.tree.leaves(eqx.filter(self.components, eqx.is_inexact_array))
            logits = jnp.zeros(len(components), jnp.result_type(*floats))
        self.logits = float_array("logits", logits)
        if self.logits.shape != (len(components),):
            raise ValueError(
                f"logits must have shape ({len(components)},), an entry for each component, "
                f"got {self.logits.shape}"
            )

    def sample(
        self, key: Key[Array, ""], sample_shape: tuple[int, ...] = ()
    ) -> Float[Array, "*sample_shape dim"]:
        """Independent draws, each from a component drawn by its weight.

        The weights get no gradient through them: those of the ELBO go through `sample_strata`.
        """
        choice_key, strata_key = jax.random.split(key)
        num_draws = math.prod(sample_shape)
        # In the default precision: noise of half precision is too coarse for the weights.
        choice = jax.random.categorical(choice_key, self.logits.astype(float), shape=(num_draws,))
        draws = self.sample_strata(strata_key, num_draws)[jnp.arange(num_draws), choice]
        return draws.reshape(*sample_shape, *draws.shape[1:])

    def sample_strata(
        self, key: Key[Array, ""], num_draws: int
    ) -> Float[Array, "num_draws num_components dim"]:
        """Independent draws of each component."""
        keys = jax.random.split(key, len(self.logits))
        draw = eqx.filter_vmap(lambda component, key: component.sample(key, (num_draws,)), out_axes=1)
        return draw(self.components, keys)

    def log_prob(self, x: Float[Array, "*batch dim"]) -> Float[Array, "*batch"]:
        """The log density at `x`; leading axes are batches."""
        log_probs = eqx.filter_vmap(lambda component: component.log_prob(x), out_axes=-1)(self.components)
        return jax.nn.logsumexp(log_probs + jax.nn.log_softmax(self.logits), axis=-1)

    @property
    def parts(self) -> list[Family]:
        """The components, one by one."""
        return [
            jax.tree.map(lambda leaf, i=i: leaf[i] if eqx.is_array(leaf) else leaf, self.components)
            for i in range(len(self.logits))
        ]

    def with_parts(self, parts: Sequence[Family], logits: ArrayLike) -> "Mixture":
        """The mixture of as many other components of the same kind."""
        return Mixture(parts, jnp.asarray(logits, self.logits.dtype))

    @property
    def weights(self) -> Float[Array, " num_components"]:
        return jax.nn.softmax(self.logits)

    @property
    def mean(self) -> Float[Array, " dim"]:
        return self._average(self._means)

    @property
    def std(self) -> Float[Array, " dim"]:
        stds = eqx.filter_vmap(lambda component: component.std)(self.components)
        return jnp.sqrt(self._average(stds**2 + (self._means - self.mean) ** 2))

    @property
    def _means(self) -> Float[Array, "num_components dim"]:
        return eqx.filter_vmap(lambda component: component.mean)(self.components)

    def _average(self, values: Float[Array, "num_components dim"]) -> Float[Array, " dim"]:
        return jnp.sum(self.weights[:, None] * values, axis=0)


def _stacked(components: Sequence[Family]) -> Family:
    """The components as one family, whose arrays have a leading axis of components."""
    if not isinstance(components, Sequence) or not components:
        raise ValueError(f"components must be a list of at least one family, got {components!r}")
    first = components[0]
    for component in components:
        if not isinstance(component, Family):
            raise TypeError(f"components must be families, got {component!r} among them")
        if isinstance(component, Stratified):
            raise TypeError("components must not be mixtures, got one; list its components instead")
        if eqx.tree_equal(_shapes(component), _shapes(first)) is not True:
            raise ValueError(
                "components must be of one type, with arrays of equal shapes and all else the same, "
                f"got {_shown(first)} and {_shown(component)}"
            )
    return jax.tree.map(
        lambda leaf, *others: jnp.stack([leaf, *others]) if eqx.is_array(leaf) else leaf, *components
    )


def _shapes(component: Family) -> Any:
    return jax.tree.map(lambda leaf: leaf.shape if eqx.is_array(leaf) else leaf, component)


def _shown(component: Family) -> str:
    shapes = [leaf.shape for leaf in jax.tree.leaves(component) if eqx.is_array(leaf)]
    return f"a {type(component).__name__} of {', '.join(map(str, shapes))}"
