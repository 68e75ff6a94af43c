"""How far outputs are from data, in the metric of the noise, and what of the outputs that depends on."""

from typing import Any

import numpy as np
from jaxtyping import Float


class Misfit:
    r"""$½ (u - y)^\top C^{-1} (u - y)$ of outputs u; $C$ is the covariance of the noise.

    Args:
        data: y, of any shape.
        noise: C as a standard deviation, those of each datum, or a matrix over all data in order.
    """

    def __init__(self, data: Float[np.ndarray, "..."], noise: Any):
        self.data = data
        self.noise = np.array(noise, float)
        self.is_matrix = self.noise.ndim == 2 and self.noise.shape != data.shape
        self._root = np.linalg.cholesky(self.noise) if self.is_matrix else None
        self._inverse_root = None if self._root is None else np.linalg.inv(self._root)

    @property
    def log_volume(self) -> float:
        """The log of the density's normalising factor: ½ log det(2π C)."""
        constant = 0.5 * self.data.size * np.log(2 * np.pi)
        if self._root is not None:
            return float(constant + np.sum(np.log(self._root.diagonal())))
        return float(constant + np.sum(np.broadcast_to(np.log(self.noise), self.data.shape)))

    def value(self, outputs: Float[np.ndarray, "..."]) -> float:
        """Of the misfit."""
        return 0.5 * float(np.sum(self.whitened(outputs - self.data) ** 2))

    def sensitivity(self, outputs: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """Its derivative with respect to the outputs."""
        residuals = outputs - self.data
        if self._root is None:
            return residuals / self.noise**2
        return np.linalg.solve(self.noise, residuals.ravel()).reshape(residuals.shape)

    def noise_of(self, standard: Float[np.ndarray, "draw ..."]) -> Float[np.ndarray, "draw ..."]:
        """Noise of the data's covariance from standard normals, one set a row."""
        if self._root is None:
            return standard * self.noise
        return (standard.reshape(len(standard), -1) @ self._root.T).reshape(standard.shape)

    def whitened(self, residuals: Any) -> Any:
        """Residuals in units of the noise; operators alone, for arrays of any library."""
        if self._inverse_root is None:
            return residuals / self.noise
        return self._inverse_root @ residuals.ravel()


class Own:
    """Outputs that are a log density themselves, one number, whose negative stands for the misfit."""

    data = None
    log_volume = 0.0

    def value(self, outputs: Float[np.ndarray, ""]) -> float:
        """Of the misfit."""
        return -float(outputs)

    def sensitivity(self, outputs: Float[np.ndarray, ""]) -> Float[np.ndarray, ""]:
        """Its derivative with respect to the output."""
        return -np.ones_like(outputs)
