"""The fitted distribution as a table."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import ArrayLike, Float

from dlrd.families import Quantiled
from dlrd.models import coordinate_names

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
            [name, *(self.shown(number) for number in row)]
            for name, row in zip(self.names, numbers, strict=True)
        ]
        widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
        lines = [
            "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])])
            for row in [head, *rows]
        ]
        return "\n".join([*lines, self.sentence])

    def shown(self, number: float) -> str:
        """A number of the table, to three digits of the smallest standard deviation where that reads well."""
        smallest = np.min(self.std, initial=1.0, where=self.std > 0)
        decimals = max(3, 2 - int(np.floor(np.log10(smallest))))
        return f"{number:.{decimals}f}" if decimals <= 6 and abs(number) < 1e4 else f"{number:.3e}"


def summarize(family: Quantiled, names: Sequence[str], sentence: str) -> Summary:
    """The summary of a distribution that knows its own quantiles."""
    mean, std = (np.asarray(each, float) for each in (family.mean, family.std))
    return Summary(list(names), mean, std, family.quantiles(QUANTILES), sentence)


def summarize_draws(draws: dict[str, ArrayLike] | ArrayLike, names: Sequence[str], sentence: str) -> Summary:
    """The summary of draws from a distribution: one row for each scalar.

    Args:
        draws: named variables with a leading axis of draws, or one array of draws.
        names: of the coordinates of one array; named variables give their own.
        sentence: how the fit ended.
    """
    if isinstance(draws, dict):
        arrays = {name: np.asarray(values) for name, values in draws.items()}
        names = [each for name, values in arrays.items() for each in coordinate_names(values.shape[1:], name)]
        draws = np.concatenate([values.reshape(len(values), -1) for values in arrays.values()], axis=1)
    rows = np.asarray(draws, float)
    flat = rows.reshape(len(rows), -1)
    return Summary(
        names=list(names),
        mean=flat.mean(axis=0),
        std=flat.std(axis=0),
        quantiles=np.quantile(flat, QUANTILES, axis=0),
        sentence=sentence,
    )
