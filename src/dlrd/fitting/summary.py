"""The fitted distribution as a table."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from dlrd.checks import shown
from dlrd.families import Quantiled
from dlrd.fitting.labels import Shapes, entry_names, flat_shapes
from dlrd.models import Model

QUANTILES = (0.05, 0.5, 0.95)
MAX_NAMED = 12
"""Names that an error message lists."""


@dataclass(frozen=True, repr=False)
class Summary:
    """Mean, standard deviation and quantiles, one row for each scalar; prints as a table."""

    names: list[str]  # of the rows
    mean: Float[np.ndarray, " row"]
    std: Float[np.ndarray, " row"]
    quantiles: Float[np.ndarray, "quantile row"]  # at 5, 50 and 95 %
    sentence: str  # how the fit ended
    shapes: Shapes  # of the variables whose entries the rows are, one variable after the other

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

    __repr__ = __str__

    def shown(self, number: float) -> str:
        """A number of the table, to three digits of the smallest standard deviation where that reads well."""
        smallest = np.min(self.std, initial=1.0, where=self.std > 0)
        decimals = max(3, 2 - int(np.floor(np.log10(smallest))))
        return f"{number:.{decimals}f}" if decimals <= 6 and abs(number) < 1e4 else f"{number:.3e}"

    @property
    def rows(self) -> dict[str, range]:
        """The rows of each variable."""
        sizes = [int(np.prod(shape)) for shape in self.shapes.values()]
        ends = np.cumsum(sizes).tolist()
        return {
            name: range(end - size, end) for name, size, end in zip(self.shapes, sizes, ends, strict=True)
        }

    def of(self, var_names: str | Sequence[str]) -> "Summary":
        """The rows of some variables, or single rows, by their names, in the order of these."""
        wanted = [var_names] if isinstance(var_names, str) else list(var_names)
        rows = {name: range(i, i + 1) for i, name in enumerate(self.names)} | self.rows
        unknown = [name for name in wanted if name not in rows]
        if unknown or not wanted:
            known = ", ".join(list(self.shapes)[:MAX_NAMED])
            more = f" and {len(self.shapes) - MAX_NAMED:,} more" if len(self.shapes) > MAX_NAMED else ""
            got = shown(unknown[0]) if unknown else "none"
            raise ValueError(f"var_names must be among {known}{more}, got {got}")
        chosen = [i for name in wanted for i in rows[name]]
        return self._rows(chosen, {name: self.shapes.get(name, ()) for name in wanted})

    def head(self, num: int) -> "Summary":
        """The first rows, each by itself."""
        chosen = list(range(min(num, len(self.names))))
        return self._rows(chosen, {self.names[i]: () for i in chosen})

    def _rows(self, chosen: list[int], shapes: Shapes) -> "Summary":
        return replace(
            self,
            names=[self.names[i] for i in chosen],
            mean=self.mean[chosen],
            std=self.std[chosen],
            quantiles=self.quantiles[:, chosen],
            shapes=shapes,
        )


def summarize(family: Quantiled, names: Sequence[str], sentence: str) -> Summary:
    """The summary of a distribution that knows its own quantiles."""
    mean, std = (np.asarray(each, float) for each in (family.mean, family.std))
    quantiles = family.quantiles(QUANTILES)
    return Summary(list(names), mean, std, quantiles, sentence, flat_shapes(tuple(names), mean.shape))


def summarize_draws(variables: dict[str, np.ndarray], sentence: str, model: Model | None = None) -> Summary:
    """The summary of draws from a distribution: one row for each scalar.

    Args:
        variables: with a leading axis of draws each.
        sentence: how the fit ended.
        model: that may have labels for the entries.
    """
    shapes = {name: values.shape[1:] for name, values in variables.items()}
    flat = np.concatenate(
        [np.asarray(values, float).reshape(len(values), -1) for values in variables.values()], axis=1
    )
    return Summary(
        names=[each for name, shape in shapes.items() for each in entry_names(name, shape, model)],
        mean=flat.mean(axis=0),
        std=flat.std(axis=0),
        quantiles=np.quantile(flat, QUANTILES, axis=0),
        sentence=sentence,
        shapes=shapes,
    )
