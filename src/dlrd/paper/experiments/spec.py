"""What is run for each figure. Settings that the paper leaves open are those of its published experiments."""

from dataclasses import dataclass, replace
from typing import Literal

RATES = (1e-2, 1e-3, 1e-4)
"""The paper's initial learning rates η₀."""
WIDE_RATES = tuple(10 ** (exponent / 2) for exponent in range(-10, 5))
"""From 1e-5 to 100, far beyond where optimisers diverge."""
EXTREME_RATES = tuple(10.0**exponent for exponent in range(-3, 4))
"""Of the experiment on divergence, from 1e-3 to 1e3."""

_NUM_FEW = 20
"""Points at which the accuracy is recorded where only the last one counts."""

Scale = Literal["quick", "paper"]


@dataclass(frozen=True)
class Setting:
    """How the learning rate of a run is chosen."""

    rule: str  # "static", "dlrd", "power", "sasa" or "sasa+"
    rate: float  # η₀
    factor: float = 0.1  # α
    min_snr: float = 1.0  # ρ_min
    exponent: float = 0.0  # ζ


@dataclass(frozen=True)
class Batch:
    """Runs of one shape: one compiled program, one result file."""

    name: str
    problem: str  # one of `targets.TARGETS`
    optimizer: str  # one of `batch.DIRECTIONS`
    settings: tuple[Setting, ...]
    num_draws: int  # S
    steps: int
    num_seeds: int
    num_points: int = 1000  # at how many steps the accuracy is recorded
    has_guard: bool = True  # in the paper's own experiments it must never act, and is counted

    def at(self, scale: Scale, num_seeds: int | None) -> "Batch":
        """The batch at a scale; `num_seeds` overrides how often each setting is run."""
        batch = self if scale == "paper" else self._quick()
        return batch if num_seeds is None else replace(batch, num_seeds=num_seeds)

    def _quick(self) -> "Batch":
        if self.steps <= self.num_points:
            return replace(self, num_seeds=1)
        if self.num_points == _NUM_FEW:
            return replace(self, steps=self.steps // 10, num_seeds=1)
        divisor = {"logistic": 50, "field": 50}.get(self.problem, 10) * (2 if self.num_draws > 8 else 1)
        return replace(
            self,
            steps=self.steps // divisor,
            num_seeds=min(self.num_seeds, 2),
            num_points=self.num_points // 5,
        )


@dataclass(frozen=True)
class Figure:
    """A figure, and the batches that it shows."""

    name: str
    title: str
    batches: tuple[Batch, ...]
    note: str = ""  # what a reader should know about the settings


def static_and_dlrd(rates: tuple[float, ...] = RATES) -> tuple[Setting, ...]:
    return tuple(Setting(rule, rate) for rule in ("static", "dlrd") for rate in rates)


def _synthetic(optimizer: str, num_draws: int = 2) -> Batch:
    """Section 3.1, d = 100."""
    name = f"synthetic-{optimizer}-S{num_draws}"
    return Batch(name, "synthetic", optimizer, static_and_dlrd(), num_draws, 100_000, 5)


def _sgd(rule: str, settings: tuple[Setting, ...]) -> Batch:
    return Batch(f"synthetic-sgd-S2-{rule}", "synthetic", "sgd", settings, 2, 100_000, 5)


_ADAM, _SGD = _synthetic("adam"), _synthetic("sgd")
_TOY = Batch(
    "synthetic-1d-adam-S1",
    "synthetic-1d",
    "adam",
    tuple(Setting("static", rate) for rate in RATES),
    1,
    1000,
    5,
)
_POWERS = _sgd(
    "power",
    tuple(Setting("power", rate, exponent=exponent) for exponent in (0.5, 1.0) for rate in (1e-2, 1e-3)),
)
_SASA = _sgd("sasa", tuple(Setting("sasa", rate) for rate in RATES))
_SASA_PLUS = _sgd("sasa-plus", tuple(Setting("sasa+", rate) for rate in RATES))
_SENSITIVITY = Batch(
    "synthetic-adam-S2-sensitivity",
    "synthetic",
    "adam",
    tuple(
        Setting("dlrd", 1e-2, factor=factor, min_snr=min_snr)
        for factor in (0.01, 0.03, 0.1, 0.3, 0.5)
        for min_snr in (0.1, 0.3, 1.0, 3.0, 10.0)
    ),
    2,
    100_000,
    5,
)
_WIDE = Batch(
    "synthetic-adam-S2-rates",
    "synthetic",
    "adam",
    static_and_dlrd(WIDE_RATES),
    2,
    100_000,
    5,
    has_guard=False,
)
_WIDE_GUARDED = replace(
    _WIDE,
    name="synthetic-adam-S2-rates-guarded",
    settings=tuple(Setting("dlrd", rate) for rate in WIDE_RATES),
    has_guard=True,
)
_DIVERGING = tuple(
    Batch(
        f"{problem}-{optimizer}-{'guarded' if has_guard else 'alone'}",
        problem,
        optimizer,
        tuple(Setting("dlrd", rate) for rate in EXTREME_RATES),
        num_draws,
        steps,
        num_seeds,
        _NUM_FEW,
        has_guard,
    )
    for problem, num_draws, steps, num_seeds in (
        ("synthetic", 2, 20_000, 3),
        ("logistic", 8, 20_000, 2),
        ("field", 8, 3_000, 1),
    )
    for optimizer in ("sgd", "adam", "rmsprop")
    for has_guard in (False, True)
)

FIGURES = (
    Figure("1d_convergence", "Figure 1: a static rate on the ELBO's contours, two parameters", (_TOY,)),
    Figure("snr", "Figure 2: parameters and their mean signal-to-noise ratio, static rate", (_ADAM,)),
    Figure("quadnormal", "Figure 3: synthetic problem, static and DLRD", (_ADAM, _SGD)),
    Figure("quadnormal_loglin", "Figure 4: synthetic problem, DLRD and power schedules", (_SGD, _POWERS)),
    Figure(
        "quadnormal_sasa",
        "Figure 5: synthetic problem, DLRD, SASA and SASA+",
        (_SGD, _SASA, _SASA_PLUS),
        note="SASA with its published defaults, δ = 0.02 and an 80 % interval (γ = 0.2).",
    ),
    Figure(
        "quadnormal_sample_size",
        "Figure 6: synthetic problem, batch sizes",
        tuple(_synthetic("adam", num_draws) for num_draws in (1, 32, 128)),
    ),
    Figure(
        "logistic",
        "Figure 7: logistic regression, breast cancer data",
        tuple(
            Batch(f"logistic-{optimizer}-S8", "logistic", optimizer, static_and_dlrd(), 8, 1_000_000, 1)
            for optimizer in ("adam", "rmsprop")
        ),
        note="Reference: the exact optimum, by quadrature and Newton's method.",
    ),
    Figure(
        "diffusion",
        "Figure 8: calibration of a diffusivity field",
        tuple(
            Batch(f"field-{optimizer}-S8", "field", optimizer, static_and_dlrd(), 8, 100_000, 1)
            for optimizer in ("adam", "adamax")
        ),
        note="Reference: the mean of two independent answers, from 131,072 quasi-random draws each, that "
        "differ by a Jeffreys divergence below 1e-4.",
    ),
    Figure("rates", "Beyond the paper: final accuracy over the initial rate", (_WIDE, _WIDE_GUARDED)),
    Figure(
        "divergence",
        "Beyond the paper: rates from 1e-3 to 1e3, alone and with the guard",
        _DIVERGING,
        note="The final divergence of each run with the rule; a cross is one beyond 1e9.",
    ),
    Figure("sensitivity", "Beyond the paper: the rule's two constants", (_SENSITIVITY,)),
    Figure(
        "families",
        "Beyond the paper: a mixture and a normalising flow",
        (
            Batch("mixture-adam-S8", "mixture", "adam", static_and_dlrd((1e-1, *RATES)), 8, 20_000, 5, 100),
            Batch("flow-adam-S8", "flow", "adam", static_and_dlrd((1e-1, *RATES)), 8, 20_000, 5, 100),
        ),
        note="Adam with a static rate and with the rule. The automatic mode does not use the rule for these "
        "families: it takes rounds, in each of which the rate falls to zero, and ends as AGREED when a "
        "longer one no longer raises the ELBO. It is compared in the benchmarks, under flows and mixtures.",
    ),
)


def batches_of(figures: tuple[Figure, ...], scale: Scale, num_seeds: int | None) -> list[Batch]:
    """All batches that the figures show, each once."""
    return list(
        {batch.name: batch.at(scale, num_seeds) for figure in figures for batch in figure.batches}.values()
    )
