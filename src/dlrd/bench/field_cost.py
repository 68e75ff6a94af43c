"""The field problem: log likelihood and gradient of eight draws, by three means, inside compiled loops."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jaxtyping import Array, Float

from dlrd.bench.timing import Row, interleaved
from dlrd.paper.problems import finite_elements
from dlrd.paper.problems.field import NOISE_STD, field

NUM_DRAWS = 8


def field_gradients(num_calls: int = 100, repeats: int = 9) -> list[Row]:
    """Ours against a loop of SciPy's banded Cholesky solves, and against a block elimination in jax."""
    problem = field()
    draws = np.random.default_rng(0).normal(size=(NUM_DRAWS, problem.modes.shape[1]))
    scipy_fn = _scipy_loop(problem.modes, problem.observed)
    times = interleaved(
        {
            "ours": _in_a_loop(problem.log_density, draws, num_calls),
            "blocks": _in_a_loop(_block_log_density(problem.modes, problem.observed), draws, num_calls),
            "scipy": lambda: [scipy_fn(draws) for _ in range(num_calls)],
        },
        repeats,
        pause=0.5,
    )
    milliseconds = {name: seconds / num_calls * 1e3 for name, seconds in times.items()}
    rows = [
        ("a loop of scipy banded Cholesky solves", "scipy", 8.0),
        ("a block elimination in jax", "blocks", 1.0),
    ]
    return [
        Row(
            f"field, log density and gradient of {NUM_DRAWS} draws",
            label,
            milliseconds["ours"],
            milliseconds[name],
            "ms",
            reach=reach,
            is_speedup=True,
        )
        for label, name, reach in rows
    ]


def _in_a_loop(
    log_density: Callable[[Array], Array], draws: np.ndarray, num_calls: int
) -> Callable[[], object]:
    """Gradients one after the other in a compiled loop, as in a fit; each depends on the one before."""

    @jax.jit
    def loop(draws: Array) -> Array:
        def body(_: Array, gradients: Array) -> Array:
            values, gradients = jax.vmap(jax.value_and_grad(log_density))(draws + 1e-12 * gradients)
            return gradients + 1e-12 * values[:, None]

        return jax.lax.fori_loop(0, num_calls, body, jnp.zeros_like(draws))

    start = jnp.asarray(draws)
    return lambda: loop(start).block_until_ready()


def _scipy_loop(
    modes: np.ndarray, observed: np.ndarray
) -> Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """One draw after the other: assembly by NumPy, the factor and two solves by LAPACK."""
    mesh = finite_elements.unit_square()
    num, width = mesh.num_unknowns, mesh.bandwidth
    rows, columns = np.broadcast_arrays(mesh.unknowns[:, :, None], mesh.unknowns[:, None, :])
    stiffness = mesh.stiffness.reshape(4, 16)
    is_kept = (rows <= columns) & (columns < num)
    places = ((width + rows - columns) * num + columns)[is_kept]

    def one(draw: np.ndarray) -> tuple[float, np.ndarray]:
        diffusivity = np.exp(modes @ draw)
        elements = (diffusivity[mesh.nodes] @ stiffness).reshape(-1, 4, 4)
        banded = np.bincount(places, elements[is_kept], (width + 1) * num).reshape(width + 1, num)
        factor = scipy.linalg.cholesky_banded(banded, check_finite=False)
        solution = scipy.linalg.cho_solve_banded((factor, False), np.full(num, mesh.load), check_finite=False)
        residual = solution - observed
        adjoint = scipy.linalg.cho_solve_banded((factor, False), residual, check_finite=False)
        u, v = np.append(solution, 0.0)[mesh.unknowns], np.append(adjoint, 0.0)[mesh.unknowns]
        by_corner = -(v[:, :, None] * u[:, None, :]).reshape(-1, 16) @ stiffness.T
        gradient = np.bincount(mesh.nodes.ravel(), by_corner.ravel())
        value = -0.5 * residual @ residual / NOISE_STD**2 - 0.5 * draw @ draw
        return value, -modes.T @ (gradient * diffusivity) / NOISE_STD**2 - draw

    def run(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values, gradients = zip(*map(one, draws), strict=True)
        return np.array(values), np.array(gradients)

    return run


def _block_log_density(modes: np.ndarray, observed: np.ndarray) -> Callable[[Array], Array]:
    """K is block tridiagonal, a block for each row of nodes: eliminated row by row, adjoint likewise."""
    mesh = finite_elements.unit_square()
    side = round(mesh.num_unknowns**0.5)
    rows, columns = np.broadcast_arrays(mesh.unknowns[:, :, None], mesh.unknowns[:, None, :])
    is_inner = (rows < mesh.num_unknowns) & (columns < mesh.num_unknowns)
    at = tuple(jnp.asarray(index[is_inner]) for index in (rows, columns))

    def blocks(diffusivity: Array) -> tuple[Array, Array]:
        elements = jnp.einsum("ea,aij->eij", diffusivity[mesh.nodes], mesh.stiffness)[is_inner]
        row, column = at
        block = (row // side, row % side, column % side)
        zeros = jnp.zeros((side, side, side), diffusivity.dtype)
        diagonal = zeros.at[block].add(jnp.where(row // side == column // side, elements, 0))
        above = zeros.at[block].add(jnp.where(row // side + 1 == column // side, elements, 0))
        return diagonal, above

    def solve(diffusivity: Array, right: Float[Array, " unknown"]) -> Float[Array, " unknown"]:
        diagonal, above = blocks(diffusivity)

        def eliminate(
            carry: tuple[Array, Array], block: tuple[Array, ...]
        ) -> tuple[tuple[Array, Array], tuple[Array, ...]]:
            coupling, reduced = carry
            diagonal, above, right = block
            factor = jnp.linalg.cholesky(diagonal - coupling)
            solved = jax.scipy.linalg.cho_solve((factor, True), jnp.column_stack([above, right - reduced]))
            return (above.T @ solved[:, :-1], above.T @ solved[:, -1]), (solved[:, :-1], solved[:, -1])

        start = (jnp.zeros((side, side), right.dtype), jnp.zeros(side, right.dtype))
        _, (upper, solved) = jax.lax.scan(eliminate, start, (diagonal, above, right.reshape(side, side)))

        def back(below: Array, block: tuple[Array, Array]) -> tuple[Array, Array]:
            upper, solved = block
            value = solved - upper @ below
            return value, value

        _, solution = jax.lax.scan(back, jnp.zeros(side, right.dtype), (upper, solved), reverse=True)
        return solution.ravel()

    @jax.custom_vjp
    def misfit(diffusivity: Array) -> Array:
        return forward(diffusivity)[0]

    def forward(diffusivity: Array) -> tuple[Array, Array]:
        solution = solve(diffusivity, jnp.full(mesh.num_unknowns, mesh.load, diffusivity.dtype))
        residual = solution - observed
        adjoint = solve(diffusivity, residual)
        u, v = (jnp.append(each, 0.0)[mesh.unknowns] for each in (solution, adjoint))
        by_corner = -jnp.einsum("ei,aij,ej->ea", v, mesh.stiffness, u)
        return 0.5 * residual @ residual, jnp.zeros_like(diffusivity).at[mesh.nodes].add(by_corner)

    misfit.defvjp(forward, lambda gradient, cotangent: (cotangent * gradient,))
    return lambda z: -misfit(jnp.exp(modes @ z)) / NOISE_STD**2 - 0.5 * z @ z
