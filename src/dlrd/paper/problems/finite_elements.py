"""∇·(D ∇u) = 10 on the unit square, u = 0 on its edge: bilinear elements and a banded Cholesky solver.

Many diffusivities D are solved at once, eight side by side in the processor's vectors. That, compiled by
Numba and called from the compiled loop, beats a block elimination in jax (`dlrd bench steps` shows both).
"""

import functools
from typing import NamedTuple

import numba
import numpy as np
from jaxtyping import Float, Int

NUM_CELLS = 20
"""Elements along each side."""
SOURCE = 10.0
LANES = 8
"""Problems solved side by side: the doubles of one 512-bit vector."""


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
    _solve_all(
        np.ascontiguousarray(diffusivity, np.float64),
        observed,
        mesh.nodes,
        mesh.unknowns,
        mesh.stiffness,
        mesh.load,
        mesh.bandwidth,
        solutions,
        values,
        gradients,
    )
    return solutions, values, gradients


# Loops over lanes go over eight neighbours in memory, which the compiler turns into single instructions.
_compiled = numba.njit(cache=True, fastmath={"contract"}, error_model="numpy", nogil=True)


@_compiled
def _solve_all(
    diffusivity, observed, nodes, unknowns, stiffness, load, bandwidth, solutions, values, gradients
):
    num_draws, num_nodes = diffusivity.shape
    num_unknowns = len(observed)
    lanes = np.empty((num_nodes, LANES))
    band = np.empty((num_unknowns, (bandwidth + 1) * LANES))
    inverse_pivot = np.empty((num_unknowns, LANES))
    solution = np.zeros((num_unknowns + 1, LANES))  # the last row stands for the edge
    adjoint = np.zeros((num_unknowns + 1, LANES))
    gradient = np.empty((num_nodes, LANES))
    for first in range(0, num_draws, LANES):
        num_lanes = min(LANES, num_draws - first)
        for lane in range(LANES):
            draw = first + min(lane, num_lanes - 1)
            for node in range(num_nodes):
                lanes[node, lane] = diffusivity[draw, node]
        _assemble(lanes, nodes, unknowns, stiffness, band)
        _factorize(band, inverse_pivot, bandwidth)
        solution[:num_unknowns] = load
        _substitute(band, inverse_pivot, bandwidth, solution)
        for row in range(num_unknowns):
            for lane in range(LANES):
                adjoint[row, lane] = solution[row, lane] - observed[row]
        for lane in range(num_lanes):
            solutions[first + lane] = solution[:num_unknowns, lane]
            values[first + lane] = 0.5 * np.sum(adjoint[:num_unknowns, lane] ** 2)
        _substitute(band, inverse_pivot, bandwidth, adjoint)
        _pull_back(solution, adjoint, nodes, unknowns, stiffness, gradient)
        for lane in range(num_lanes):
            gradients[first + lane] = gradient[:, lane]


@_compiled
def _assemble(diffusivity, nodes, unknowns, stiffness, band):
    """The upper half of K: `band[i]` holds K[i, i], K[i, i+1], …, lanes innermost."""
    band[:] = 0
    edge = len(band)
    for element in range(len(nodes)):
        d0, d1, d2, d3 = (
            diffusivity[nodes[element, 0]],
            diffusivity[nodes[element, 1]],
            diffusivity[nodes[element, 2]],
            diffusivity[nodes[element, 3]],
        )
        for i in range(4):
            row = unknowns[element, i]
            for j in range(4):
                column = unknowns[element, j]
                if column < row or column == edge:
                    continue
                target = band[row, (column - row) * LANES : (column - row + 1) * LANES]
                c0, c1, c2, c3 = (
                    stiffness[0, i, j],
                    stiffness[1, i, j],
                    stiffness[2, i, j],
                    stiffness[3, i, j],
                )
                for lane in range(LANES):
                    target[lane] += c0 * d0[lane] + c1 * d1[lane] + c2 * d2[lane] + c3 * d3[lane]


@_compiled
def _factorize(band, inverse_pivot, bandwidth):
    """K = Uᵀ P U in place, P the pivots and U with a unit diagonal.

    Eight scalars by name: the compiler packs them into vectors, which it does not for a loop over lanes that
    it cannot prove to be free of overlap.
    """
    num_rows = len(band)
    for k in range(num_rows):
        pivot_row = band[k]
        inverse = inverse_pivot[k]
        for lane in range(LANES):
            inverse[lane] = 1 / pivot_row[lane]
        num_below = min(bandwidth, num_rows - 1 - k)
        for i in range(1, num_below + 1):
            u = pivot_row[i * LANES : (i + 1) * LANES]
            f0, f1, f2, f3 = u[0] * inverse[0], u[1] * inverse[1], u[2] * inverse[2], u[3] * inverse[3]
            f4, f5, f6, f7 = u[4] * inverse[4], u[5] * inverse[5], u[6] * inverse[6], u[7] * inverse[7]
            target = band[k + i]
            for j in range(num_below - i + 1):
                t = j * LANES
                s = t + i * LANES
                s0, s1, s2, s3 = pivot_row[s], pivot_row[s + 1], pivot_row[s + 2], pivot_row[s + 3]
                s4, s5, s6, s7 = pivot_row[s + 4], pivot_row[s + 5], pivot_row[s + 6], pivot_row[s + 7]
                t0, t1, t2, t3 = target[t], target[t + 1], target[t + 2], target[t + 3]
                t4, t5, t6, t7 = target[t + 4], target[t + 5], target[t + 6], target[t + 7]
                target[t] = t0 - f0 * s0
                target[t + 1] = t1 - f1 * s1
                target[t + 2] = t2 - f2 * s2
                target[t + 3] = t3 - f3 * s3
                target[t + 4] = t4 - f4 * s4
                target[t + 5] = t5 - f5 * s5
                target[t + 6] = t6 - f6 * s6
                target[t + 7] = t7 - f7 * s7
            u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7] = f0, f1, f2, f3, f4, f5, f6, f7


@_compiled
def _substitute(band, inverse_pivot, bandwidth, x):
    """Solves K x = right-hand side, which is given in `x`, in place."""
    num_rows = len(band)
    for k in range(num_rows):
        for i in range(1, min(bandwidth, num_rows - 1 - k) + 1):
            for lane in range(LANES):
                x[k + i, lane] -= band[k, i * LANES + lane] * x[k, lane]
    for k in range(num_rows - 1, -1, -1):
        for lane in range(LANES):
            x[k, lane] *= inverse_pivot[k, lane]
        for i in range(1, min(bandwidth, num_rows - 1 - k) + 1):
            for lane in range(LANES):
                x[k, lane] -= band[k, i * LANES + lane] * x[k + i, lane]


@_compiled
def _pull_back(solution, adjoint, nodes, unknowns, stiffness, gradient):
    """−λᵀ ∂K/∂D_a u at each node a."""
    gradient[:] = 0
    for element in range(len(nodes)):
        i0, i1, i2, i3 = (
            unknowns[element, 0],
            unknowns[element, 1],
            unknowns[element, 2],
            unknowns[element, 3],
        )
        u0, u1, u2, u3 = solution[i0], solution[i1], solution[i2], solution[i3]
        v0, v1, v2, v3 = adjoint[i0], adjoint[i1], adjoint[i2], adjoint[i3]
        for corner in range(4):
            c = stiffness[corner]
            target = gradient[nodes[element, corner]]
            for lane in range(LANES):
                w0, w1, w2, w3 = u0[lane], u1[lane], u2[lane], u3[lane]
                target[lane] -= (
                    v0[lane] * (c[0, 0] * w0 + c[0, 1] * w1 + c[0, 2] * w2 + c[0, 3] * w3)
                    + v1[lane] * (c[1, 0] * w0 + c[1, 1] * w1 + c[1, 2] * w2 + c[1, 3] * w3)
                    + v2[lane] * (c[2, 0] * w0 + c[2, 1] * w1 + c[2, 2] * w2 + c[2, 3] * w3)
                    + v3[lane] * (c[3, 0] * w0 + c[3, 1] * w1 + c[3, 2] * w2 + c[3, 3] * w3)
                )
