"""A server with models of UM-Bridge's own library, on the port that is given."""

import sys

import numpy as np
import umbridge

MATRICES = np.array([[1.0, 2.0, 0.5], [0.0, -1.0, 3.0]]), np.array([[2.0, 0.0, 1.0]])


class Quadratic(umbridge.Model):
    """Two blocks in, of sizes 1 and 2, and two out, of sizes 2 and 1: matrices times squares."""

    def __init__(self, name: str, has_gradient: bool, has_jacobian: bool) -> None:
        super().__init__(name)
        self.supported = has_gradient, has_jacobian

    def get_input_sizes(self, config: dict) -> list[int]:
        return [1, 2]

    def get_output_sizes(self, config: dict) -> list[int]:
        return [2, 1]

    def __call__(self, parameters: list, config: dict) -> list:
        x = np.concatenate(parameters)
        if x[0] < 0:
            raise ValueError("the first must not be negative")
        return [(config.get("factor", 1.0) * matrix @ x**2).tolist() for matrix in MATRICES]

    def gradient(self, out_wrt: int, in_wrt: int, parameters: list, sens: list, config: dict) -> list:
        x = np.concatenate(parameters)
        whole = np.array(sens) @ MATRICES[out_wrt] * 2 * x
        return np.split(whole, [1])[in_wrt].tolist()

    def apply_jacobian(self, out_wrt: int, in_wrt: int, parameters: list, vec: list, config: dict) -> list:
        x, moved = np.concatenate(parameters), np.zeros(3)
        np.split(moved, [1])[in_wrt][:] = vec
        return (MATRICES[out_wrt] @ (2 * x * moved)).tolist()

    def supports_evaluate(self) -> bool:
        return True

    def supports_gradient(self) -> bool:
        return self.supported[0]

    def supports_apply_jacobian(self) -> bool:
        return self.supported[1]


if __name__ == "__main__":
    models = [
        Quadratic("adjoint", True, True),
        Quadratic("tangent", False, True),
        Quadratic("plain", False, False),
    ]
    umbridge.serve_models(models, int(sys.argv[1]))
