"""A server of UM-Bridge's own library, on the loopback address."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dlrd.simulation.run import Question, Simulation, Status, answered
from dlrd.simulation.server import Server

SERVED = Path(__file__).with_name("umbridge_models.py")
POINT = np.array([1.0, 2.0, -3.0])
OUTPUTS = np.array([1 + 8 + 4.5, -4 + 27, 2 + 9])
JACOBIAN = np.array([[1.0, 2.0, 0.5], [0.0, -1.0, 3.0], [2.0, 0.0, 1.0]]) * 2 * POINT


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, SERVED, str(port)], stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except OSError:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
    yield f"http://127.0.0.1:{port}"
    process.terminate()
    process.wait()


def test_a_pullback_by_gradient(url: str) -> None:
    server = Server(url, "adjoint", {})
    assert server.dim == 3
    outputs, pull = server(POINT)
    np.testing.assert_allclose(outputs, OUTPUTS)
    sensitivity = np.array([0.3, -1.0, 2.0])
    np.testing.assert_allclose(pull(sensitivity), sensitivity @ JACOBIAN)


def test_a_jacobian_by_its_products(url: str) -> None:
    outputs, jacobian = Server(url, "tangent", {})(POINT)
    np.testing.assert_allclose(outputs, OUTPUTS)
    np.testing.assert_allclose(jacobian, JACOBIAN)


def test_outputs_alone_and_a_config(url: str) -> None:
    np.testing.assert_allclose(Server(url, "plain", {"factor": 2.0})(POINT), 2 * OUTPUTS)


def test_an_error_of_the_model_is_an_answer(url: str) -> None:
    answer = answered(Simulation(Server(url, "plain", {})), Question(-POINT))
    assert answer.status is Status.RAISED
    assert "the server says: " in answer.message


def test_what_is_not_there_is_named(url: str) -> None:
    with pytest.raises(ValueError, match="has no model forward; it has adjoint, tangent, plain"):
        Server(url, "forward", {})
    with pytest.raises(ConnectionError, match=r"no server answers at http://127.0.0.1:9"):
        Server("http://127.0.0.1:9", "forward", {})
