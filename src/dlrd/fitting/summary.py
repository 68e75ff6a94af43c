"""The fitted distribution as a table."""

import statistics
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


def summarize_normal(
    mean: Float[np.ndarray, " dim"], std: Float[np.ndarray, " dim"], sentence: str
) -> Summary:
    """The summary of a normal distribution."""
    mean, std = mean.astype(float), std.astype(float)
    standard = [statistics.NormalDist().inv_cdf(q) for q in QUANTILES]
    quantiles = mean + np.outer(standard, std)
    return Summary(_names(mean.shape), mean, std, quantiles, sentence)


def summarize_draws(draws: Float[np.ndarray, "draw ..."], sentence: str) -> Summary:
    """The summary of draws from a distribution."""
    flat = draws.reshape(len(draws), -1).astype(float)
    return Summary(
        names=_names(draws.shape[1:]),
        mean=flat.mean(axis=0),
        std=flat.std(axis=0),
        quantiles=np.quantile(flat, QUANTILES, axis=0),
        sentence=sentence,
    )


def _names(shape: tuple[int, ...]) -> list[str]:
    return [f"z[{', '.join(map(str, index))}]" if index else "z" for index in np.ndindex(shape)]
