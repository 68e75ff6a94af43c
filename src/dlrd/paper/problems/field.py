"""Section 3.3: a diffusivity field, calibrated to noisy values of a finite element solution."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.buffer_callback import buffer_callback
from jaxtyping import Array, Float

from dlrd.models import LogDensity

CORRELATION_LENGTH = 0.2
EXPLAINED = 0.99
"""Share of the field's variance that the modes must carry."""
NOISE_STD = 0.05


class Field(NamedTuple):
    """The calibration problem."""

    log_density: LogDensity
    modes: Float[np.ndarray, "node mode"]  # G = modes · z is the log diffusivity at the nodes
    truth: Float[np.ndarray, " mode"]  # the z behind the observations
    observed: Float[np.ndarray, " unknown"]  # u at the inner nodes, with noise


def field(seed: int = 0) -> Field:
    r"""The log joint density of the field's 29 coefficients z, N(0, I) a priori.

    $$∇·(D ∇u) = 10, \quad u = 0 \text{ on the boundary}, \quad D = e^G, \quad G = Φ z$$

    G is a Gaussian field with covariance exp(−‖x − x'‖²/(2 · 0.2²)), cut off after the modes Φ of its
    Karhunen–Loève expansion that carry 99 % of its variance. Observed is u at the 361 inner nodes of 20 × 20
    bilinear elements, with noise of standard deviation 0.05; the truth is a draw from the prior.

    Args:
        seed: of the truth and the noise.
    """
    from dlrd.paper.problems import finite_elements

    modes = karhunen_loeve(finite_elements.NUM_CELLS + 1)
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=modes.shape[1])
    solution = finite_elements.solve(np.exp(modes @ truth)[None])[0]
    observed = solution + NOISE_STD * rng.normal(size=len(solution))
    misfit = _misfit(observed)
    num_normals = len(truth) + len(observed)
    log_normalizer = float(0.5 * num_normals * np.log(2 * np.pi) + len(observed) * np.log(NOISE_STD))

    def log_density(z: Float[Array, " mode"]) -> Float[Array, ""]:
        diffusivity = jnp.exp(jnp.asarray(modes, z.dtype) @ z)
        return -misfit(diffusivity) / NOISE_STD**2 - 0.5 * jnp.sum(z**2) - log_normalizer

    return Field(log_density, modes, truth, observed)


def karhunen_loeve(num_ticks: int) -> Float[np.ndarray, "node mode"]:
    """Eigenvectors of the covariance at the nodes, scaled by the roots of their eigenvalues, largest first.

    The covariance is a product of one in x and the same in y, so its eigenvectors are products too. Taken
    that way they are unique, though the square's symmetry makes most eigenvalues double.
    """
    ticks = np.linspace(0, 1, num_ticks)
    along = np.exp(-0.5 * ((ticks[:, None] - ticks[None]) / CORRELATION_LENGTH) ** 2)
    eigenvalues, eigenvectors = np.linalg.eigh(along)
    eigenvalues, eigenvectors = np.maximum(eigenvalues[::-1], 0), eigenvectors[:, ::-1]
    eigenvectors *= np.sign(eigenvectors[0] + eigenvectors[1])  # they come with either sign
    products = np.multiply.outer(eigenvalues, eigenvalues).ravel()
    order = np.argsort(-np.round(products, 10), kind="stable")  # double ones stay in their order
    explained = np.cumsum(products[order]) / np.sum(products)
    chosen = order[: int(np.argmax(explained >= EXPLAINED)) + 1]
    return np.kron(eigenvectors, eigenvectors)[:, chosen] * np.sqrt(products[chosen])


def _misfit(observed: Float[np.ndarray, " unknown"]) -> Any:
    """½ ‖u(D) − observed‖² as a function that jax can differentiate and batch."""
    from dlrd.paper.problems import finite_elements

    def on_host(_: Any, results: tuple[Any, Any], diffusivity: Any) -> None:
        given = np.asarray(diffusivity)
        computed = finite_elements.misfit_and_gradient(given.reshape(-1, given.shape[-1]), observed)
        for result, numbers in zip(results, computed, strict=True):
            np.asarray(result)[...] = numbers.reshape(result.shape)

    def value_and_gradient(diffusivity: Float[Array, " node"]) -> tuple[Array, Array]:
        dtype = diffusivity.dtype
        shapes = (jax.ShapeDtypeStruct((), dtype), jax.ShapeDtypeStruct(diffusivity.shape, dtype))
        # The buffers themselves, no copies: those would wait for the thread that waits for the callback.
        return buffer_callback(on_host, shapes, vmap_method="broadcast_all")(diffusivity)

    @jax.custom_vjp
    def misfit(diffusivity: Float[Array, " node"]) -> Float[Array, ""]:
        return value_and_gradient(diffusivity)[0]

    misfit.defvjp(value_and_gradient, lambda gradient, cotangent: (cotangent * gradient,))
    return misfit
