"""The field problem by scikit-fem, without jax: u at the inner nodes, and sensitivities by the adjoint.

    python field_simulator.py PORT MODES.npy

serves it by UM-Bridge.
"""

import sys
from collections.abc import Callable

import numpy as np
import scipy.sparse.linalg
import skfem
from skfem.helpers import dot, grad

NUM_CELLS = 20


@skfem.BilinearForm
def stiffness(u, v, w):
    return w["diffusivity"] * dot(grad(u), grad(v))


@skfem.LinearForm
def load(v, w):
    return -10.0 * v


@skfem.LinearForm
def pulled(v, w):
    return -v * dot(grad(w["solution"]), grad(w["adjoint"]))


class FieldSimulator:
    """∇·(D ∇u) = 10 with D = exp(Φ z), to u and the adjoint's way back.

    Args:
        modes: Φ, at nodes that are numbered row by row.
    """

    def __init__(self, modes: np.ndarray):
        ticks = np.linspace(0, 1, NUM_CELLS + 1)
        self.mesh = skfem.MeshQuad.init_tensor(ticks, ticks)
        at = np.rint(NUM_CELLS * self.mesh.p).astype(int)
        number = at[1] * (NUM_CELLS + 1) + at[0]  # of the problem, for each of scikit-fem's nodes
        self.modes = modes[number]
        self.basis = skfem.Basis(self.mesh, skfem.ElementQuad1(), intorder=3)
        inner = self.mesh.interior_nodes()
        self.inner = inner[np.argsort(number[inner])]

    def __call__(self, z: np.ndarray) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
        diffusivity = np.exp(self.modes @ z)
        matrix = stiffness.assemble(self.basis, diffusivity=self.basis.interpolate(diffusivity))
        solve = scipy.sparse.linalg.factorized(matrix[self.inner][:, self.inner].tocsc())
        solution = self._everywhere(solve(load.assemble(self.basis)[self.inner]))

        def pullback(sensitivity: np.ndarray) -> np.ndarray:
            adjoint = self._everywhere(solve(sensitivity))
            fields = {
                name: self.basis.interpolate(field)
                for name, field in {"solution": solution, "adjoint": adjoint}.items()
            }
            return (pulled.assemble(self.basis, **fields) * diffusivity) @ self.modes

        return solution[self.inner], pullback

    def _everywhere(self, inside: np.ndarray) -> np.ndarray:
        """With zeros on the edge."""
        whole = np.zeros(self.mesh.p.shape[1])
        whole[self.inner] = inside
        return whole


def serve(port: int, modes: np.ndarray) -> None:
    """By UM-Bridge, on all addresses."""
    import umbridge

    run = FieldSimulator(modes)

    class Served(umbridge.Model):
        def get_input_sizes(self, config: dict) -> list[int]:
            return [modes.shape[1]]

        def get_output_sizes(self, config: dict) -> list[int]:
            return [len(run.inner)]

        def __call__(self, parameters: list, config: dict) -> list:
            return [run(np.array(parameters[0]))[0].tolist()]

        def gradient(self, out_wrt: int, in_wrt: int, parameters: list, sens: list, config: dict) -> list:
            return run(np.array(parameters[0]))[1](np.array(sens)).tolist()

        def supports_evaluate(self) -> bool:
            return True

        def supports_gradient(self) -> bool:
            return True

    umbridge.serve_models([Served("field")], port)


if __name__ == "__main__":
    serve(int(sys.argv[1]), np.load(sys.argv[2]))
