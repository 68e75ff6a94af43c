"""∇·(D ∇u) = 10 on the unit square, u = 0 on its edge: bilinear elements and a banded Cholesky solver.

Many diffusivities D are solved at once, eight side by side in the processor's vectors. That, compiled by
Numba and called from the compiled loop, beats a block elimination in jax (`dlrd bench steps` shows both).
"""

import functools
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from dlrd.paper.problems.lanes import NUM_LANES, compiled, empty_lanes, load, store

NUM_CELLS = 20
"""Elements along each side."""
SOURCE = 10.0


class Mesh(NamedTuple):
    """The square cut into equal square elements; nodes are numbered row by row."""

    points: Float[np.ndarray, "node 2"]
    nodes: Int[np.ndarray, "element 4"]  # the corners of each element, counterclockwise
    unknowns: Int[
        np.ndarray, "element 4"
    ]  # their numbers among the inner nodes; on the edge, the number of those
    is_inner: np.ndarray  # of each node
    stiffness: Float[
        np.ndarray, "4 4 4"
    ]  # [a, i, j]: of an element whose D is 1 at corner a and 0 at the others

    @property
    def num_unknowns(self) -> int:
        return int(self.is_inner.sum())

    @property
    def bandwidth(self) -> int:
        return round(self.num_unknowns**0.5) + 1

    @property
    def load(self) -> float:
        """The right-hand side, the same at all inner nodes: −∫ 10 v over the four elements around one."""
        return -SOURCE / len(self.nodes)


@functools.cache
def unit_square(num_cells: int = NUM_CELLS) -> Mesh:
    """The mesh of `num_cells` × `num_cells` elements."""
    ticks = np.linspace(0, 1, num_cells + 1)
    y, x = np.meshgrid(ticks, ticks, indexing="ij")
    number = np.arange((num_cells + 1) ** 2).reshape(num_cells + 1, num_cells + 1)
    corners = [number[:-1, :-1], number[:-1, 1:], number[1:, 1:], number[1:, :-1]]
    nodes = np.stack([corner.ravel() for corner in corners], axis=1)
    is_inner = ((x > 0) & (x < 1) & (y > 0) & (y < 1)).ravel()
    num_unknowns = is_inner.sum()
    unknown = np.where(is_inner, np.cumsum(is_inner) - 1, num_unknowns)
    return Mesh(np.column_stack([x.ravel(), y.ravel()]), nodes, unknown[nodes], is_inner, _stiffness())


def _stiffness() -> Float[np.ndarray, "4 4 4"]:
    """∫ N_a ∇N_i · ∇N_j by 2 × 2 Gauss points; in two dimensions it does not depend on the element's size."""
    corner_x, corner_y = np.array([-1, 1, 1, -1]), np.array([-1, -1, 1, 1])
    result = np.zeros((4, 4, 4))
    for x, y in np.column_stack([corner_x, corner_y]) / np.sqrt(3):
        shape = (1 + corner_x * x) * (1 + corner_y * y) / 4
        along_x = corner_x * (1 + corner_y * y) / 4
        along_y = corner_y * (1 + corner_x * x) / 4
        result += np.multiply.outer(shape, np.outer(along_x, along_x) + np.outer(along_y, along_y))
    return result


def solve(diffusivity: Float[np.ndarray, "draw node"]) -> Float[np.ndarray, "draw unknown"]:
    """u at the inner nodes, for each D given at all nodes."""
    return _run(diffusivity, np.zeros(unit_square().num_unknowns))[0]


def misfit_and_gradient(
    diffusivity: Float[np.ndarray, "draw node"], observed: Float[np.ndarray, " unknown"]
) -> tuple[Float[np.ndarray, " draw"], Float[np.ndarray, "draw node"]]:
    """½ ‖u − observed‖² for each D, and its gradient in D, by the adjoint equation K λ = u − observed."""
    _, values, gradients = _run(diffusivity, observed)
    return values, gradients


def _run(
    diffusivity: Float[np.ndarray, "draw node"], observed: Float[np.ndarray, " unknown"]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    mesh = unit_square()
    num_draws = len(diffusivity)
    solutions = np.empty((num_draws, mesh.num_unknowns))
    values, gradients = np.empty(num_draws), np.empty((num_draws, len(mesh.points)))
    equations = (mesh.nodes, mesh.unknowns, mesh.stiffness, mesh.load, mesh.bandwidth)
    results = (solutions, values, gradients)
    _solve_all(np.ascontiguousarray(diffusivity, np.float64), observed, equations, results)
    return solutions, values, gradients


@compiled
def _solve_all(diffusivity, observed, equations, results):
    nodes, unknowns, stiffness, right_side, bandwidth = equations
    solutions, values, gradients = results
    num_draws, num_nodes = diffusivity.shape
    num_unknowns = len(observed)
    lanes = empty_lanes(num_nodes)
    band = empty_lanes(num_unknowns * (bandwidth + 1)).reshape(num_unknowns, bandwidth + 1, NUM_LANES)
    solution = empty_lanes(num_unknowns + 1)  # the last row stands for the edge
    adjoint = empty_lanes(num_unknowns + 1)
    gradient = empty_lanes(num_nodes)
    value = empty_lanes(1)
    for first in range(0, num_draws, NUM_LANES):
        num_lanes = min(NUM_LANES, num_draws - first)
        for lane in range(NUM_LANES):
            draw = first + min(lane, num_lanes - 1)
            for node in range(num_nodes):
                lanes[node, lane] = diffusivity[draw, node]
        _assemble(lanes, nodes, unknowns, stiffness, band)
        _factorize(band)
        solution[:num_unknowns] = right_side
        solution[num_unknowns] = 0
        _substitute(band, solution)
        value[:] = 0
        for row in range(num_unknowns):
            residual = load(solution, row) - observed[row]
            store(adjoint, row, residual)
            store(value, 0, load(value, 0) + 0.5 * residual * residual)
        adjoint[num_unknowns] = 0
        _substitute(band, adjoint)
        _pull_back(solution, adjoint, nodes, unknowns, stiffness, gradient)
        for lane in range(num_lanes):
            solutions[first + lane] = solution[:num_unknowns, lane]
            values[first + lane] = value[0, lane]
            gradients[first + lane] = gradient[:, lane]


@compiled
def _assemble(diffusivity, nodes, unknowns, stiffness, band):
    """The upper half of K: `band[i]` holds K[i, i], K[i, i+1], …"""
    band[:] = 0
    edge = len(band)
    for element in range(len(nodes)):
        d0 = load(diffusivity, nodes[element, 0])
        d1 = load(diffusivity, nodes[element, 1])
        d2 = load(diffusivity, nodes[element, 2])
        d3 = load(diffusivity, nodes[element, 3])
        for i in range(4):
            row = unknowns[element, i]
            for j in range(4):
                column = unknowns[element, j]
                if row <= column < edge:
                    c = stiffness[:, i, j]
                    place = (row, column - row)
                    store(band, place, load(band, place) + c[0] * d0 + c[1] * d1 + c[2] * d2 + c[3] * d3)


@compiled
def _factorize(band):
    """K = Uᵀ P U in place, U with a unit diagonal, which gives its place to the inverses of the pivots P."""
    num_rows, width = band.shape[:2]
    for k in range(num_rows):
        num_right = min(width, num_rows - k)
        inverse = 1.0 / load(band, (k, 0))
        store(band, (k, 0), inverse)
        for i in range(1, num_right):
            factor = load(band, (k, i)) * inverse
            for j in range(num_right - i):
                store(band, (k + i, j), load(band, (k + i, j)) - factor * load(band, (k, i + j)))
            store(band, (k, i), factor)


@compiled
def _substitute(band, x):
    """Solves K x = right-hand side, which is given in `x`, in place.

    Sums end with the neighbour found last, so that the processor can start on the next before that is known.
    """
    num_rows, width = band.shape[:2]
    for k in range(num_rows):
        value = load(x, k)
        for i in range(min(width - 1, k), 0, -1):
            value = value - load(band, (k - i, i)) * load(x, k - i)
        store(x, k, value)
    for k in range(num_rows - 1, -1, -1):
        value = load(x, k) * load(band, (k, 0))
        for i in range(min(width, num_rows - k) - 1, 0, -1):
            value = value - load(band, (k, i)) * load(x, k + i)
        store(x, k, value)


@compiled
def _pull_back(solution, adjoint, nodes, unknowns, stiffness, gradient):
    """−λᵀ ∂K/∂D_a u at each node a."""
    gradient[:] = 0
    for element in range(len(nodes)):
        u0 = load(solution, unknowns[element, 0])
        u1 = load(solution, unknowns[element, 1])
        u2 = load(solution, unknowns[element, 2])
        u3 = load(solution, unknowns[element, 3])
        for corner in range(4):
            node = nodes[element, corner]
            total = load(gradient, node)
            for i in range(4):
                c = stiffness[corner, i]
                force = c[0] * u0 + c[1] * u1 + c[2] * u2 + c[3] * u3
                total = total - load(adjoint, unknowns[element, i]) * force
            store(gradient, node, total)
