"""How likely the data are, given what a program has put out."""

from collections.abc import Callable
from typing import Any, Protocol

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dlrd.simulation import Misfit
from dlrd.simulation.misfit import Own

Variables = dict[str, np.ndarray]
"""Of many draws, on their natural scale, a draw a row."""
LikelihoodFn = Callable[[Array, dict[str, Array]], Float[Array, ""]]
"""The outputs of one run and the variables to the log likelihood; written with jax."""


class Likelihood(Protocol):
    """What a model needs to know."""

    @property
    def data(self) -> Float[np.ndarray, "..."] | None:
        """Where they are known."""
        ...

    @property
    def misfit(self) -> Misfit | Own | None:
        """What of the outputs counts; None for all of them."""
        ...

    def given(self, outputs: Array) -> Array:
        """What `log_density` takes of the outputs of one draw; written with jax."""
        ...

    def log_density(self, given: Array, variables: dict[str, Array]) -> Float[Array, ""]:
        """Of one draw: from its negative misfit where there is one, else from its outputs."""
        ...

    def data_of(self, outputs: np.ndarray, variables: Variables, rng: np.random.Generator) -> Any:
        """New data for the outputs of many draws; None where that is not known."""
        ...

    def pointwise(self, outputs: np.ndarray, variables: Variables) -> np.ndarray:
        """The log likelihood of each datum, for the outputs of many draws."""
        ...


class Gaussian:
    """Normal noise of a known covariance, or times an unknown level.

    Args:
        misfit: data and covariance.
        level: the name of the variable that the standard deviations are multiplied with, if there is one.
    """

    def __init__(self, misfit: Misfit, level: str | None):
        self.misfit = misfit
        self.data = misfit.data
        self.level = level

    def given(self, outputs: Array) -> Array:
        return -0.5 * jnp.sum(self.misfit.whitened(outputs - self.data) ** 2)

    def log_density(self, given: Array, variables: dict[str, Array]) -> Float[Array, ""]:
        level = variables[self.level] if self.level else jnp.ones(())
        return given / level**2 - self.data.size * jnp.log(level) - self.misfit.log_volume

    def data_of(self, outputs: np.ndarray, variables: Variables, rng: np.random.Generator) -> np.ndarray:
        return outputs + self._levels(variables) * self.misfit.noise_of(rng.standard_normal(outputs.shape))

    def pointwise(self, outputs: np.ndarray, variables: Variables) -> np.ndarray:
        levels = self._levels(variables)
        if self.misfit.is_matrix:  # correlated data have one likelihood together
            values = np.array([-self.misfit.value(each) for each in outputs])
            level = levels.reshape(-1)
            return values / level**2 - self.data.size * np.log(level) - self.misfit.log_volume
        sds = levels * self.misfit.noise
        return -0.5 * ((outputs - self.data) / sds) ** 2 - np.log(sds) - 0.5 * np.log(2 * np.pi)

    def _levels(self, variables: Variables) -> np.ndarray:
        """Of each draw, to be multiplied with its outputs."""
        num = len(next(iter(variables.values())))
        level = variables[self.level] if self.level else np.ones(num)
        return level.reshape(-1, *(1,) * self.data.ndim)


class OwnDensity:
    """Outputs that are the log likelihood themselves, or the log density of all, one number."""

    data = None

    def __init__(self) -> None:
        self.misfit = Own()

    def given(self, outputs: Array) -> Array:
        return outputs

    def log_density(self, given: Array, variables: dict[str, Array]) -> Float[Array, ""]:
        return given

    def data_of(self, outputs: np.ndarray, variables: Variables, rng: np.random.Generator) -> None:
        return None

    def pointwise(self, outputs: np.ndarray, variables: Variables) -> np.ndarray:
        raise TypeError(_NO_DATA)


class Custom:
    """A function of the user's.

    Args:
        fn: the outputs of one run and all variables to the log likelihood.
    """

    data = None
    misfit = None

    def __init__(self, fn: LikelihoodFn):
        self.fn = fn

    def given(self, outputs: Array) -> Array:
        return outputs

    def log_density(self, given: Array, variables: dict[str, Array]) -> Float[Array, ""]:
        return self.fn(given, variables)

    def data_of(self, outputs: np.ndarray, variables: Variables, rng: np.random.Generator) -> None:
        return None

    def pointwise(self, outputs: np.ndarray, variables: Variables) -> np.ndarray:
        raise TypeError(_NO_DATA)


_NO_DATA = "the likelihood of each datum is known where data and noise are given, not for one function of all"
