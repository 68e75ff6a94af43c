"""What a model's pattern gives to fits: its Hessian from few products, in the order of elimination."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from dlrd.families.coloring import Coloring, color
from dlrd.families.curvature import MAX_WHOLE
from dlrd.families.elimination import Elimination, Values, eliminate
from dlrd.families.pattern import Pattern
from dlrd.families.trainable import Untrained

MIN_SAVING = 4
"""Times fewer products than coordinates. From gradients a curvature has about dim / 2 times the noise, and a
product costs two of them: below, these are the better choice."""
MAX_FILLED = 0.5
"""Of all pairs of coordinates."""


class Couplings(Untrained):
    """A pattern, its colouring and its elimination."""

    elimination: Elimination
    coloring: Coloring
    rows: Int[np.ndarray, " entry"]  # of the pattern
    columns: Int[np.ndarray, " entry"]
    places: Int[np.ndarray, " entry"]  # of the pattern's entries among the factor's

    @property
    def pattern(self) -> Pattern:
        return Pattern(self.elimination.dim, self.rows, self.columns)

    @property
    def is_saving(self) -> bool:
        """Whether a Hessian takes so few products that it is worth to be measured."""
        return MIN_SAVING * self.coloring.num_colors <= self.elimination.dim

    @property
    def is_sparse(self) -> bool:
        """Whether the factor has so few entries that a dense one has more noise than it needs."""
        dim = self.elimination.dim
        return self.elimination.num_entries <= MAX_FILLED * dim * (dim - 1) / 2

    @property
    def is_for_gradients(self) -> bool:
        """Whether a normal with this pattern is better fitted by gradients alone, as a dense matrix."""
        return not self.is_saving and self.elimination.dim <= MAX_WHOLE

    def seeds(self, dtype: Any) -> Float[np.ndarray, "color dim"]:
        """The directions whose products with the Hessian tell all of it."""
        return self.coloring.seeds(dtype)

    def hessian(self, products: Float[Array, "color dim"]) -> Values:
        """The Hessian from these products, in the order of elimination."""
        diagonal, entries = self.coloring.recovered(jnp.asarray(products))
        lower = jnp.zeros(self.elimination.num_entries, entries.dtype)
        return self.elimination.permuted(diagonal), lower.at[self.places].set(entries, unique_indices=True)


def couplings(pattern: Pattern) -> Couplings | None:
    """Of a pattern; None where eliminating it would cost too much."""
    elimination = eliminate(pattern)
    if elimination is None:
        return None
    return Couplings(elimination, color(pattern), pattern.rows, pattern.columns, elimination.places(pattern))
