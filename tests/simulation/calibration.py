"""A calibration that may be killed and called again at any moment: python calibration.py FOLDER [fit | learn]

Writes a line to FOLDER/executed for each run that is carried out, FOLDER/runs.jsonl, and at its end
FOLDER/result.
"""

import os
import sys
import time
from pathlib import Path

import numpy as np

from dlrd.simulation import Question, Session, Simulation
from dlrd.simulation.session import Policy

FOLDER = Path(sys.argv[1] if __name__ == "__main__" else ".")  # where tests are looked for, it is imported
PATH = str(FOLDER / "executed")


def run(x: np.ndarray, path: str = PATH) -> tuple[np.ndarray, np.ndarray]:
    time.sleep(0.02)
    file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.write(file, x.tobytes().hex().encode() + b"\n")
    os.close(file)
    return np.array([x[0] + x[1], x[0] * x[1]]), np.array([[1.0, 1.0], [x[1], x[0]]])


def ask() -> str:
    """Twelve batches of eight, each of which depends on what the one before gave."""
    session = Session(Simulation(run), 2, FOLDER / "runs.jsonl", ["a", "b"], Policy(), "")
    points = np.arange(16.0).reshape(8, 2)
    for _ in range(12):
        answers = session.ask([Question(point) for point in points])
        points = 0.5 * points + np.sin([answer.outputs for answer in answers])
    session.close()
    return points.tobytes().hex()


def fit(gradient: str) -> str:
    """The whole of it, with jax."""
    import jax

    import dlrd
    from dlrd.models import priors

    jax.config.update("jax_enable_x64", True)
    prior = {"a": priors.normal(), "b": priors.normal(1.0, 1.0)}
    log = FOLDER / "runs.jsonl"
    model = dlrd.models.simulator(
        run, prior, np.array([2.0, 0.5]), 0.3, gradient=gradient, workers=2, log=log
    )
    found = dlrd.fit(model, tolerance=0.05, starts=1, progress=False)
    model.close()
    return f"{found.outcome.name} {found.elbo!r} {np.asarray(found.summary().mean).tobytes().hex()}"


if __name__ == "__main__":
    kinds = {"fit": lambda: fit("given"), "learn": lambda: fit("surrogate")}
    (FOLDER / "result").write_text(kinds.get(sys.argv[-1], ask)())
