"""The certificate: with draws of its own, the ELBO of a family and how far from the optimum it is."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, Float, Key

from dlrd.families import BoundsGap, Certifiable, Correctable, Family
from dlrd.fitting.automatic.judge.blocks import flat_of, gain_of, gap_of, noise_of
from dlrd.fitting.automatic.judge.look import BATCH, NUM_BLOCKS, Look, look
from dlrd.models import Model

MIN_DRAWS = NUM_BLOCKS * BATCH
"""Of a certificate, and by how many it grows, unless the budget is too small for that."""
MAX_SHARE_BAD = 1e-3
CONFIDENCE = 2.0
"""Standard errors within which a number is taken to be."""


class Certificate(NamedTuple):
    """What was measured."""

    num_draws: int
    elbo: float  # over the draws where log p is finite
    elbo_error: float  # its standard error
    gap: float  # to the family's optimum, in nats, as the gradient tells; nan where that cannot be told
    gap_error: float  # its standard error
    gain: float  # of another move like that from where it came, to the first order; nan likewise
    gain_error: float  # its standard error
    share_bad: float  # of the draws, where log p is not finite
    share_failed: float  # of the draws, whose evaluation failed
    log_ratios: Float[np.ndarray, " draw"]  # log p − log q
    gradients: Float[np.ndarray, "block coordinate"] | None  # the mean of each block
    noise: float = float("nan")  # what noise adds to ½ ‖g‖²; nan where no correction is possible
    lessons: Float[np.ndarray, "block number"] | None = None  # the mean of each block, of what can be taught
    corrected_error: float = float("nan")  # the standard error of `corrected_gap`; nan likewise
    flat_ways: Float[np.ndarray, "way coordinate"] | None = None  # once looked for, by the draws until then
    flat_gap: float = 0.0  # what of the gap is along these
    flat_bound: float = 0.0  # what that is below with some confidence
    flat_noise: float = 0.0  # what noise adds to it, of which a correction leaves as much

    @property
    def is_outside(self) -> bool:
        """Whether so much of the family lies where log p is not finite that no normal can be the answer."""
        return self.share_bad > MAX_SHARE_BAD

    @property
    def elbo_bound(self) -> float:
        """What the ELBO is above with some confidence: of heavy tails, few draws may show none."""
        return self.elbo - CONFIDENCE * self.elbo_error

    @property
    def gap_bound(self) -> float:
        """What the gap is below with some confidence."""
        return max(self.gap, 0.0) + CONFIDENCE * self.gap_error

    @property
    def correction(self) -> float:
        """By which share of the measured gradient a correction moves: as much of it as is no noise.

        To a family whose gap the steps' noise has left, the draws of a certificate are as good as so many
        more steps. Moved by the share w of the measured gradient, which is −e + ξ with the noise ξ for a
        family that is off by e, it is off by (1 − w) e + w ξ. Along flat ways it moves all the way.
        """
        gap = max(self.gap - self.flat_gap, 0.0)
        return gap / (gap + self.noise) if gap + self.noise > 0 else 0.0

    @property
    def flat_step(self) -> Float[np.ndarray, " coordinate"]:
        """To the optimum along the flat ways, but for noise."""
        assert self.gradients is not None
        assert self.flat_ways is not None
        return (np.mean(self.gradients, axis=0) @ self.flat_ways.T) @ self.flat_ways

    @property
    def corrected_gap(self) -> float:
        """The gap that should be left when the family is moved by the correction; draws of its own tell."""
        return self.correction * self.noise + self.flat_noise

    @property
    def corrected_bound(self) -> float:
        """What that gap is below with some confidence."""
        return self.corrected_gap + CONFIDENCE * self.corrected_error

    @property
    def gain_bound(self) -> float:
        """What the gain is below with some confidence."""
        return max(self.gain, 0.0) + CONFIDENCE * self.gain_error


def certify(
    model: Model,
    family: Family,
    key: Key[Array, ""],
    num_draws: int,
    came_from: Family,
    shorter: Certificate | None = None,
    min_draws: int = MIN_DRAWS,
) -> Certificate:
    r"""Estimates the ELBO of `family` and its gap to the optimum.

    Near the optimum the gap is ½ ‖g‖², g the gradient in coordinates in which the Fisher information is the
    identity (for the means of a mean-field normal: the curvature). The square of a mean of noisy gradients
    would be too large by their noise; the products of different blocks are not.

    Where means and scales depend on each other, as in the neck of a funnel, the ELBO is flatter along some
    direction than that says. A fit goes on moving along such a direction; what another move of the kind would
    gain tells.

    Args:
        model: what is fitted.
        family: any; the gap is known where it is `Certifiable` and the model has gradients.
        key: of the draws.
        num_draws: in all, rounded up to full blocks.
        came_from: where the steps to it began.
        shorter: a certificate of the same family with the same key, to be gone on with.
        min_draws: by how many it grows at once, twice `NUM_BLOCKS` or a multiple of that.
    """
    first = 0 if shorter is None else shorter.num_draws // min_draws
    last = max(-(-num_draws // min_draws), first + 1)
    batch = min_draws // NUM_BLOCKS
    looks = [look(model, family, key, index, batch=batch) for index in range(first, last)]
    return of_looks(looks, family, came_from, model.can_fail, shorter)


def of_looks(
    looks: Sequence[Look],
    family: Family,
    came_from: Family,
    can_fail: bool,
    shorter: Certificate | None = None,
) -> Certificate:
    """What looks of one length have shown, also behind those of a shorter certificate."""
    log_ratios = np.concatenate([each.log_ratios.ravel() for each in looks])
    before = 0 if shorter is None else shorter.num_draws / (shorter.num_draws + len(log_ratios))
    gradients = _mean([each.gradients for each in looks], shorter and shorter.gradients, before)
    lessons = _mean([each.lessons for each in looks], shorter and shorter.lessons, before)
    if shorter is not None:
        log_ratios = np.concatenate([shorter.log_ratios, log_ratios])
    ways = None if shorter is None else shorter.flat_ways
    return Certificate(
        gradients=gradients,
        lessons=lessons,
        flat_ways=ways,
        **_of_gradients(gradients, family, came_from, ways),
        **_of_values(log_ratios, can_fail),
    )


def _mean(
    seen: Sequence[Array | None], before: Float[np.ndarray, "block number"] | None, share: float
) -> Float[np.ndarray, "block number"] | None:
    """Block by block; `share` is that of what was seen before. None where nothing was looked at."""
    each = [np.asarray(rows) for rows in seen if rows is not None]
    if not each:
        return None
    now = np.mean(each, axis=0)
    return now if before is None else share * before + (1 - share) * now


def with_ways(
    seen: Certificate, family: Family, came_from: Family, ways: Float[np.ndarray, "way coordinate"]
) -> Certificate:
    """The certificate in the metric that knows of ways along which the ELBO is flatter: see `flat_ways`."""
    return seen._replace(flat_ways=ways, **_of_gradients(seen.gradients, family, came_from, ways))


def with_more_values(
    model: Model,
    family: Family,
    key: Key[Array, ""],
    seen: Certificate,
    num_draws: int,
    min_draws: int = MIN_DRAWS,
) -> Certificate:
    """The certificate with up to `num_draws` draws behind all that needs no gradients."""
    indices, batch = range(seen.num_draws // min_draws, num_draws // min_draws), min_draws // NUM_BLOCKS
    looks = [look(model, family, key, index, has_gradients=False, batch=batch) for index in indices]
    more = [each.log_ratios.ravel() for each in looks]
    return seen._replace(**_of_values(np.concatenate([seen.log_ratios, *more]), model.can_fail))


def correction(family: Correctable, seen: Certificate) -> Any:
    """The family, moved by the gradient that its certificate has measured."""
    assert seen.gradients is not None
    step = seen.correction * np.mean(seen.gradients, axis=0)
    return family.corrected(step if seen.flat_ways is None else step + seen.flat_step)


def confirmed(
    model: Model,
    families: tuple[Family, Family],
    key: Key[Array, ""],
    seen: Certificate,
    num_draws: int,
    min_draws: int = MIN_DRAWS,
) -> Certificate:
    """The certificate of a corrected family: the gap that should be left, and what of the gain is missing.

    Rare draws with large gradients, of which the certificate may have seen none, make it too sure of where
    to go. The ELBO of both families with the same noise tells, for it has far less noise than either.

    Args:
        model: what is fitted.
        families: as it was measured, and as corrected.
        key: of draws that the certificate has not seen.
        seen: the certificate.
        num_draws: for each family.
        min_draws: by how many it grows at once.
    """
    nothing = seen._replace(log_ratios=np.zeros(0), num_draws=0)
    before, after = (with_more_values(model, each, key, nothing, num_draws, min_draws) for each in families)
    with np.errstate(invalid="ignore"):
        gains = after.log_ratios - before.log_ratios
    gains = gains[np.isfinite(gains)]
    missing = max(seen.gap, 0.0) - seen.corrected_gap - float(np.mean(gains)) if len(gains) else np.inf
    return after._replace(
        gap=seen.corrected_gap + max(missing, 0.0),
        gap_error=float(np.hypot(seen.corrected_error, _standard_error(gains))),
        gradients=None,
        noise=float("nan"),
        corrected_error=float("nan"),
        flat_gap=0.0,
        flat_bound=0.0,
        flat_noise=0.0,
    )


def _of_gradients(
    gradients: Float[np.ndarray, "block coordinate"] | None,
    family: Family,
    came_from: Family,
    ways: Float[np.ndarray, "way coordinate"] | None,
) -> dict[str, Any]:
    """The fields of a certificate that follow from the gradients."""
    if gradients is None:
        return dict.fromkeys(("gap", "gap_error", "gain", "gain_error"), float("nan"))
    names = "gap", "gap_error", "gain", "gain_error", "noise", "corrected_error"
    names += "flat_gap", "flat_bound", "flat_noise"
    assert isinstance(family, Certifiable)
    with np.errstate(over="ignore", invalid="ignore"):
        products = 0.5 * (
            family.gap_products(gradients)
            if isinstance(family, BoundsGap)
            else family.inner_products(gradients, gradients)
        )
        along = family.inner_products(gradients, family.displacement(came_from)[None])[:, 0]
    gap, noise, flat = gap_of(products), (float("nan"), float("nan")), (0.0, 0.0, 0.0)
    if isinstance(family, Correctable) and np.isfinite(gap[0]):
        noise = noise_of(products, gap[0])
    if ways is not None:
        with np.errstate(over="ignore", invalid="ignore"):
            flat_parts = gradients @ ways.T
            gap = gap_of(products + 0.5 * flat_parts @ flat_parts.T)
        flat = flat_of(flat_parts, CONFIDENCE)
    return dict(zip(names, (*gap, *gain_of(along), *noise, *flat), strict=True))


def _of_values(log_ratios: Float[np.ndarray, " draw"], can_fail: bool) -> dict[str, Any]:
    """The fields of a certificate that follow from the log ratios alone."""
    good = log_ratios[np.isfinite(log_ratios)]
    num_failed = int(np.isnan(log_ratios).sum()) if can_fail else 0
    return {
        "num_draws": len(log_ratios),
        "elbo": float(np.mean(good)) if len(good) else float("-inf"),
        "elbo_error": _standard_error(good),
        "share_bad": 1 - (len(good) + num_failed) / len(log_ratios),
        "share_failed": num_failed / len(log_ratios),
        "log_ratios": log_ratios,
    }


def _standard_error(values: Float[np.ndarray, " draw"]) -> float:
    with np.errstate(over="ignore"):
        return float(np.std(values) / np.sqrt(max(len(values) - 1, 1))) if len(values) else float("inf")


def improvement(
    model: Model, old: Family, new: Family, key: Key[Array, ""], num_draws: int
) -> tuple[float, float]:
    """How much higher the ELBO of `new` is, and the standard error of that, with the same noise for both."""
    num_blocks, differences = -(-num_draws // BATCH), []
    for index in range(-(-num_blocks // NUM_BLOCKS)):
        num = min(num_blocks - index * NUM_BLOCKS, NUM_BLOCKS)
        before, after = (look(model, family, key, index, num).log_ratios for family in (old, new))
        with np.errstate(invalid="ignore"):
            differences.append((after - before).ravel())
    each = np.concatenate(differences)
    each = each[np.isfinite(each)]
    if len(each) < 2:
        return float("nan"), float("inf")
    with np.errstate(over="ignore"):
        return float(np.mean(each)), float(np.std(each, ddof=1) / np.sqrt(len(each)))
