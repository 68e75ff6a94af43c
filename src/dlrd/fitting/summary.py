"""The fitted distribution as a table."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

QUANTILES = (0.05, 0.5, 0.95)


@dataclass(frozen=True)
class Summary:
    """Mean, standard deviation and quantiles of each coordinate; prints as a table."""

    names: list[str]
    mean: Float[np.ndarray, " dim"]
    std: Float[np.ndarray, " dim"]
    quantiles: Float[np.ndarray, "quantile dim"]  # at 5, 50 and 95 %
    sentence: str  # how the fit ended

    def __str__(self) -> str:
        head = ["", "mean", "sd", *(f"{100 * q:g}%" for q in QUANTILES)]
        numbers = np.column_stack([self.mean, self.std, self.quantiles.T])
        rows = [
            [name, *(f"{number:.3f}" if abs(number) < 1e4 else f"{number:.3e}" for number in row)]
            for name, row in zip(self.names, numbers, strict=True)
        ]
        widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
        lines = [
            "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])])
            for row in [head, *rows]
        ]
        return "\n".join([*lines, self.sentence])


def summarize(draws: Float[np.ndarray, "draw ..."], sentence: str) -> Summary:
    """The summary of draws from a fitted distribution."""
    flat = draws.reshape(len(draws), -1).astype(float)
    names = [
        f"z[{', '.join(map(str, np.unravel_index(i, draws.shape[1:])))}]" if draws.ndim > 1 else "z"
        for i in range(flat.shape[1])
    ]
    return Summary(
        names=names,
        mean=flat.mean(axis=0),
        std=flat.std(axis=0),
        quantiles=np.quantile(flat, QUANTILES, axis=0),
        sentence=sentence,
    )
