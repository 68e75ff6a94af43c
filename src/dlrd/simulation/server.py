"""A model behind a server that speaks UM-Bridge 1.0: JSON over HTTP, in any language.

The protocol is described at https://um-bridge-benchmarks.readthedocs.io/en/docs/umbridge/clients.html.
"""

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

# Not through the proxy of the environment: servers are on this machine or in the same cluster.
_open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


class Server:
    """A function of the parameters that asks a server; made by `dlrd.models.umbridge`.

    Args:
        url: where the server is.
        name: of the model there.
        config: what the model is told besides.
    """

    def __init__(self, url: str, name: str, config: Mapping[str, Any]):
        self.url = url.rstrip("/")
        self.name = name
        self.config = dict(config)
        about = self._asked("Info")
        if about.get("protocolVersion") != 1.0:
            raise ValueError(f"{url} must speak UM-Bridge 1.0, got {about.get('protocolVersion')}")
        if name not in about["models"]:
            raise ValueError(f"{url} has no model {name}; it has {', '.join(about['models'])}")
        support = self._asked("ModelInfo", name=name)["support"]
        self.has_gradient, self.has_jacobian = (support.get(key) for key in ("Gradient", "ApplyJacobian"))
        self.sizes = [self._sizes(kind, f"{kind}Sizes") for kind in ("input", "output")]

    @property
    def dim(self) -> int:
        """The numbers that the model takes."""
        return sum(self.sizes[0])

    def __call__(self, parameters: Float[np.ndarray, " dim"]) -> Any:
        blocks = self._blocks(parameters, 0)
        outputs = np.concatenate(self._asked("Evaluate", **self._named, input=blocks)["output"])
        if self.has_gradient:
            return outputs, self._pullback(blocks)
        if self.has_jacobian:
            columns = [self._pushed(blocks, unit) for unit in np.eye(len(parameters))]
            return outputs, np.stack(columns, axis=1)
        return outputs

    def _pullback(self, blocks: list[list[float]]) -> Callable[[np.ndarray], np.ndarray]:
        def pulled(sensitivity: Float[np.ndarray, " output"]) -> Float[np.ndarray, " dim"]:
            parts = self._blocks(sensitivity, 1)
            gradient = [
                sum(
                    np.array(self._derived("Gradient", blocks, i, j, {"sens": part})) * 1.0
                    for j, part in enumerate(parts)
                )
                for i in range(len(blocks))
            ]
            return np.concatenate([np.asarray(each) for each in gradient])

        return pulled

    def _pushed(self, blocks: list[list[float]], direction: np.ndarray) -> Float[np.ndarray, " output"]:
        """The Jacobian times a direction, in which one number alone is not zero."""
        parts = self._blocks(direction, 0)
        i = next(i for i, part in enumerate(parts) if any(part))
        results = [
            self._derived("ApplyJacobian", blocks, i, j, {"vec": parts[i]}) for j in range(len(self.sizes[1]))
        ]
        return np.concatenate(results)

    def _derived(
        self, what: str, blocks: list[list[float]], in_wrt: int, out_wrt: int, vector: dict[str, Any]
    ) -> list[float]:
        asked = {"input": blocks, "inWrt": in_wrt, "outWrt": out_wrt, **vector}
        return self._asked(what, **self._named, **asked)["output"]

    def _blocks(self, vector: np.ndarray, side: int) -> list[list[float]]:
        """A vector in the parts that the model takes it in."""
        ends = np.cumsum(self.sizes[side])[:-1]
        return [part.tolist() for part in np.split(np.ravel(vector), ends)]

    def _sizes(self, kind: str, key: str) -> list[int]:
        return self._asked(f"{kind.capitalize()}Sizes", **self._named)[key]

    @property
    def _named(self) -> dict[str, Any]:
        return {"name": self.name, "config": self.config}

    def _asked(self, what: str, **fields: Any) -> dict[str, Any]:
        """What the server answers; its own errors are told in its words."""
        data = json.dumps(fields).encode() if fields else None
        request = urllib.request.Request(f"{self.url}/{what}", data, {"Content-Type": "application/json"})
        try:
            with _open(request) as response:
                answer = json.load(response)
        except urllib.error.HTTPError as error:
            answer = _own_words(error)
        except urllib.error.URLError as error:
            raise ConnectionError(f"no server answers at {self.url}: {error.reason}") from error
        if "error" in answer:
            raise RuntimeError(f"the server says: {answer['error'].get('message')}")
        return answer


def _own_words(error: urllib.error.HTTPError) -> dict[str, Any]:
    """What the server says about an error, in the form of the protocol or in any other."""
    text = error.read().decode(errors="replace")
    try:
        return json.loads(text)
    except ValueError:
        return {"error": {"message": f"{error}. {text}"}}
