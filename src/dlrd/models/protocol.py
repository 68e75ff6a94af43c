"""What a model is: a log density of vectors, what it can do, and what its coordinates mean to the user."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, Float, Key
from typing_extensions import (
    Protocol,
    runtime_checkable,
)  # unlike Python 3.11's, computes no property to check

LogDensity = Callable[[Array], Float[Array, ""]]
"""The unnormalised log density of one draw, written with jax."""


@runtime_checkable
class Model(Protocol):
    """An unnormalised log posterior, evaluated for a batch of draws at once.

    Everything that evaluates a log density goes through `values` and `values_and_gradients`, and asks what
    the model can do, never what kind it is. Both can be traced by jax; a model outside jax calls back. A
    model is hashable, and equal to those that share its compiled programs.
    """

    @property
    def dim(self) -> int:
        """The numbers of a draw."""
        ...

    @property
    def names(self) -> tuple[str, ...]:
        """Of the coordinates of a draw."""
        ...

    @property
    def has_gradient(self) -> bool:
        """Whether there are gradients; else only values."""
        ...

    @property
    def is_exact(self) -> bool:
        """Whether the values are those of all data; else of a random part of it that the key chooses."""
        ...

    @property
    def can_fail(self) -> bool:
        """Whether draws may fail one by one, which says nothing about the density there: these are nan."""
        ...

    def values(self, draws: Float[Array, "draw dim"], key: Key[Array, ""] | None) -> Float[Array, " draw"]:
        """The log density at each draw; where there are gradients, differentiable by jax.

        Args:
            draws: one a row.
            key: of the part of the data, None if the model is exact. It may have made the draws, too: what is
                chosen should come from it with a number of the model's own folded in.
        """
        ...

    def values_and_gradients(
        self, draws: Float[Array, "draw dim"], key: Key[Array, ""] | None
    ) -> tuple[Float[Array, " draw"], Float[Array, "draw dim"]]:
        """The log density and its gradient at each draw."""
        ...

    def constrained(self, draws: Float[Array, "draw dim"]) -> Any:
        """The user's own variables: a dict of arrays, one draw a row each, or the draws themselves."""
        ...

    def unconstrained(self, variables: Any) -> Float[Array, "draw dim"]:
        """The draws that give these variables."""
        ...


@runtime_checkable
class Labelled(Protocol):
    """A model whose variables have named axes, which answers then carry."""

    dims: dict[str, tuple[str, ...]]  # of the variables and the data: their axes without that of the draws
    coords: dict[str, np.ndarray]  # the labels along an axis, where there are any


@runtime_checkable
class Predictive(Protocol):
    """A model that can make data."""

    def predictions(self, draws: Float[Array, "draw dim"], key: Key[Array, ""]) -> dict[str, Array]:
        """Data as the model makes them, one set a draw, in the leading axis, under the names of the data."""
        ...


@runtime_checkable
class Observed(Protocol):
    """A model that knows its data."""

    observed_data: dict[str, np.ndarray]  # what the likelihood is of
    constant_data: dict[str, np.ndarray]  # what else is given, as covariates

    def log_likelihood(self, draws: Float[Array, "draw dim"]) -> dict[str, Array]:
        """Of each observation, one set a draw, in the leading axis, under the names of the data."""
        ...


@runtime_checkable
class StartsChains(Protocol):
    """A model whose own library samples, too, and takes starting points in a form of its own."""

    def chain_starts(self, draws: Float[Array, "chain dim"]) -> Any:
        """The draws, one a chain, as that library takes them."""
        ...


@runtime_checkable
class Reparameterizable(Protocol):
    """A model that knows how its hierarchies are parameterised otherwise."""

    def reparameterization(self, coordinates: Sequence[int]) -> str | None:
        """Code that does so for these coordinates, None where it knows none."""
        ...


class Audit(NamedTuple):
    """What a model that stands for another misses at draws."""

    values: Float[Array, " draw"]  # of the model that it stands for
    residuals: Float[Array, " draw"]  # by how much the values are above its own
    draws: Float[Array, "draw dim"]
    outputs: Float[Array, "draw ..."]  # of the model that it stands for


@runtime_checkable
class Audited(Protocol):
    """A model that stands for another, and can tell by how much it is wrong."""

    def audit(self, draws: Float[Array, "draw dim"]) -> Audit:
        """At these draws, with a run each."""
        ...


@runtime_checkable
class Emulable(Model, Protocol):
    """A model whose outputs alone are dear, and can be learnt; what follows from them is written in jax."""

    @property
    def is_emulated(self) -> bool:
        """Whether automatic fits should learn them."""
        ...

    @property
    def num_emulated(self) -> int:
        """Of the coordinates: those that the outputs depend on, the first."""
        ...

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Of the outputs of one draw."""
        ...

    @property
    def difference_step(self) -> float:
        """How far apart draws are whose outputs differ enough."""
        ...

    def outputs_at(self, draw: Float[Array, " dim"]) -> Float[Array, "..."]:
        """By a run, called back from jax; nan where that failed."""
        ...

    def log_density_of(self, outputs: Float[Array, "..."], draw: Float[Array, " dim"]) -> Float[Array, ""]:
        """Of a draw with these outputs."""
        ...


@runtime_checkable
class Simulated(Protocol):
    """A model each of whose evaluations is a run that somebody waits for; it can tell where they stand."""

    @property
    def num_workers(self) -> int:
        """How many runs can be under way."""
        ...

    @property
    def runs_a_gradient(self) -> int:
        """Runs that a value with its gradient takes."""
        ...

    @property
    def runs_sentence(self) -> str:
        """Where the runs stand, for a person who waits."""
        ...

    @property
    def runs_notes(self) -> list[str]:
        """At the end: what was run, and how gradients were made."""
        ...

    @property
    def runs_warnings(self) -> list[str]:
        """What a user should know about runs that failed."""
        ...
