"""Every decision of the rule against the paper's Algorithm 1 in exact arithmetic on the same numbers."""

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import dlrd

Iterates = np.ndarray  # (iteration, parameter)


class Look(NamedTuple):
    """An iteration at which the algorithm compares the mean SNR with its minimum."""

    iteration: int
    window_start: int
    snr: Fraction | float  # exact; inf for a line, nan where nothing has moved


def looks_of_algorithm_1(iterates: Iterates, decays: set[int]) -> Iterator[Look]:
    """Algorithm 1 with its raw sums a, b, c in whole numbers, the window restarting after each of `decays`.

    ρ does not change when a parameter is multiplied by a constant: a power of two makes its floats integers.
    """
    columns = [as_integers(column) for column in iterates.T]
    k, k_min, start = -1, 2, 0
    for iteration, parameters in enumerate(zip(*columns, strict=True)):
        k += 1
        if k == 0:
            start = iteration
            a, b, c = ([0] * len(columns) for _ in range(3))
        for index, parameter in enumerate(parameters):
            a[index] += parameter
            b[index] += parameter**2
            c[index] += k * parameter
        if k >= k_min:
            yield Look(iteration, start, mean_snr(k, a, b, c))
        if iteration in decays:
            k_min, k = k, -1


def as_integers(column: np.ndarray) -> list[int]:
    ratios = [float(value).as_integer_ratio() for value in column]
    scale = max(denominator for _, denominator in ratios)
    return [numerator * (scale // denominator) for numerator, denominator in ratios]


def mean_snr(k: int, a: list[int], b: list[int], c: list[int]) -> Fraction | float:
    """The mean of the paper's ρ; as a fraction where floats would not tell it from the usual minima."""
    ratios = []
    for total, squares, weighted in zip(a, b, c, strict=True):
        spread = (k + 1) * squares - total**2
        if spread == 0:
            continue  # has not moved
        signal = 3 * (2 * weighted - k * total) ** 2
        ratios.append((signal, k * (k + 2) * spread - signal))
    if not ratios:
        return np.nan
    if any(noise == 0 for _, noise in ratios):
        return np.inf
    # Quotients of integers are correctly rounded, so this sum of eight at most is good to 1e-15.
    mean = sum(signal / noise for signal, noise in ratios) / len(ratios)
    if any(abs(mean - minimum) < 1e-12 * minimum for minimum in MINIMA):
        return sum(Fraction(signal, noise) for signal, noise in ratios) / len(ratios)
    return mean


def snr_error(window: Iterates, unit: float) -> float:
    """How far rounding may move the mean SNR of a window, `unit` being the unit roundoff (half of eps).

    Allowed in single precision is what stays however long the window is: each sum off by 8 units of the sum
    of its terms' sizes (one rounding for the shift, two for products, two of a compensated sum, with room to
    spare), and as much for each operation of the formula.
    """
    shifted = window.astype(np.longdouble) - window[0]
    k = len(window) - 1
    positions = np.arange(k + 1)[:, None]
    size, squares = np.sum(np.abs(shifted), axis=0), np.sum(shifted**2, axis=0)
    weighted_size = np.sum(positions * np.abs(shifted), axis=0)
    centered = shifted - np.mean(shifted, axis=0)
    spread = k * (k + 1) * (k + 2) / 12
    covariation = np.sum((positions - k / 2) * centered, axis=0)
    signal = covariation**2 / spread
    noise = np.sum((centered - (positions - k / 2) * covariation / spread) ** 2, axis=0)
    moved = squares > 0
    size, squares, weighted_size, covariation, signal, noise = (
        value[moved] for value in (size, squares, weighted_size, covariation, signal, noise)
    )

    # Sums in double precision are plain: each of their additions may round once more.
    rounding = (8 if window.dtype == np.float32 else 8 + len(window)) * unit
    variation_error = rounding * (squares + 3 * size**2 / (k + 1))
    covariation_error = 2 * rounding * (weighted_size + k / 2 * size)
    signal_error = (2 * np.abs(covariation) + covariation_error) * covariation_error / spread
    signal_error += rounding * signal
    noise_error = variation_error + signal_error
    if np.any(noise <= noise_error):
        return np.inf
    ratio = signal / noise
    error = (signal_error + ratio * noise_error) / (noise - noise_error)
    return float(np.mean(error) + rounding * np.mean(ratio))


@jax.jit
@partial(jax.vmap, in_axes=(0, None))
def run_rule(iterates: jax.Array, min_snr: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The number of decays and the SNR after each iterate, for a batch of trajectories."""
    rule = dlrd.dynamic_decay(1.0, factor=0.5, min_snr=min_snr)

    def step(state: dlrd.rates.DynamicDecayState, iterate: jax.Array):
        _, state = rule.update(jnp.zeros_like(iterate), state, iterate)
        return state, (state.num_decays, state.snr)

    return jax.lax.scan(step, rule.init(iterates[0]), iterates)[1]


class Disputes(NamedTuple):
    """Looks at which the rule and exact arithmetic decide differently."""

    exact_ties: int  # the exact SNR is the minimum itself
    close: int  # it differs from the minimum by less than rounding can tell


def check_trajectory(iterates: Iterates, num_decays: np.ndarray, snr: np.ndarray, min_snr: float) -> Disputes:
    """Looks again at every decision, in the window in which the rule took it.

    Without disputes the decisions are those of Algorithm 1, by induction over the windows.
    """
    unit = float(np.finfo(iterates.dtype).eps) / 2
    decays = set(np.flatnonzero(np.diff(num_decays, prepend=0)).tolist())
    exact_ties = close = 0
    look = None
    for look in looks_of_algorithm_1(iterates, decays):
        if (look.iteration in decays) == (look.snr < min_snr):
            continue
        if look.snr == min_snr:
            exact_ties += 1
            continue
        window = iterates[look.window_start : look.iteration + 1]
        assert abs(float(look.snr - min_snr)) <= snr_error(window, unit), (
            f"{look} is told by {iterates.dtype}, but the rule finds {snr[look.iteration]}"
        )
        close += 1
    if look is not None and np.isfinite(float(look.snr)):
        window = iterates[look.window_start : look.iteration + 1]
        error = abs(float(snr[look.iteration]) - float(look.snr))
        assert not error > snr_error(window, unit), f"{look}, but the rule finds {snr[look.iteration]}"
    return Disputes(exact_ties, close)


MINIMA = [1.0, 0.375, 2.75]  # the same number in both precisions
NUM_TRAJECTORIES, LENGTH = 100, 300


def drift(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    slope = 10 ** rng.uniform(-4, 0, (shape[0], 1, shape[2]))
    return slope * np.arange(shape[1])[:, None] + rng.normal(size=shape)


def approach(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """An exponential approach with noise that remembers."""
    distance, time_constant = 10 ** rng.uniform([[[0]], [[0]]], [[[3]], [[2]]], (2, shape[0], shape[2]))
    noise = rng.normal(size=shape)
    memory = rng.uniform(0, 0.99, shape[0])[:, None]
    for iteration in range(1, shape[1]):
        noise[:, iteration] += memory * noise[:, iteration - 1]
    decay = np.exp(-np.arange(shape[1])[:, None] / time_constant[:, None, :])
    return distance[:, None, :] * decay + noise


def random_walk(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return np.cumsum(rng.normal(size=shape), axis=1)


def steps(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Constant but for jumps: windows in which some parameters, or all, have not moved."""
    is_jump = rng.random(shape) < 10 ** rng.uniform(-2, 0, (shape[0], 1, 1))
    return np.cumsum(rng.normal(size=shape) * is_jump, axis=1)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@given(
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from([drift, approach, random_walk, steps]),
    num_params=st.integers(1, 8),
    relative_offset=st.sampled_from([0.0, 1.0, 1e2, 1e4, 1e6]),
    magnitude=st.floats(1e-3, 1e3),
    min_snr=st.sampled_from(MINIMA),
)
@settings(
    max_examples=6, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.reuse, Phase.generate]
)  # a seed does not shrink
def test_decisions_are_those_of_exact_arithmetic(
    dtype: str,
    seed: int,
    kind: Callable[[np.random.Generator, tuple[int, ...]], np.ndarray],
    num_params: int,
    relative_offset: float,
    magnitude: float,
    min_snr: float,
):
    rng = np.random.default_rng(seed)
    shape = (NUM_TRAJECTORIES, LENGTH, num_params)
    offset = relative_offset * rng.uniform(-1, 1, (NUM_TRAJECTORIES, 1, num_params))
    is_free = rng.random((NUM_TRAJECTORIES, 1, num_params)) < 0.9
    batch = (magnitude * (offset + is_free * kind(rng, shape))).astype(dtype)

    with jax.enable_x64(dtype == "float64"):
        num_decays, snr = jax.device_get(run_rule(batch, min_snr))
    disputes = [
        check_trajectory(*trajectory, min_snr) for trajectory in zip(batch, num_decays, snr, strict=True)
    ]

    # Exact ties are no accident where parameters rest between jumps: one jump after four iterates at rest
    # has ρ = 1, whatever its height. Elsewhere ties and close calls turn up by chance alone: the mean SNR
    # moves by about 1/k from look to look, k being at most 300, and rounding moves it by 1e-5 at the most.
    num_disputes = sum(dispute.close + (kind is not steps) * dispute.exact_ties for dispute in disputes)
    assert num_disputes <= NUM_TRAJECTORIES // 100


@pytest.mark.parametrize(
    ("num_iterations", "distance", "time_constant"),
    [
        (10**5, 300, 1e3),  # windows of about 10⁴ iterates
        pytest.param(10**6, 1e5, 3e4, marks=pytest.mark.slow),  # of about 3 · 10⁵
    ],
)
def test_a_million_iterations_with_an_offset_of_a_million(
    precision: jnp.dtype, num_iterations: int, distance: float, time_constant: float
):
    """The noise has unit size; what float32 leaves of it beside the offset is what the reference gets too."""
    rng = np.random.default_rng(0)
    decay = np.exp(-np.arange(num_iterations)[:, None] / (time_constant * np.asarray([1, 1.3])))
    iterates = (10**6 + distance * decay + rng.normal(size=(num_iterations, 2))).astype(precision)

    num_decays, snr = jax.device_get(run_rule(iterates[None], 1.0))
    disputes = check_trajectory(iterates, num_decays[0], snr[0], 1.0)

    assert num_decays[0, -1] >= 2
    assert disputes.exact_ties == 0
    # Near the end of a window of k iterates the SNR falls by about 1/k an iteration, and float32 tells it to
    # about 1e-5 (see `snr_error`): a decision can be a few iterations off, each of them a dispute.
    assert disputes.close <= 10 * num_decays[0, -1]
