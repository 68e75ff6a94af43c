"""What an automatic fit says about itself, in words."""

from dataclasses import replace

import pytest

from dlrd.fitting.verdict import FAIR_TAIL, GOOD_TAIL, Rung, Verdict

VERDICT = Verdict(
    tolerance=1e-2,
    gap=2e-3,
    gap_error=1e-3,
    elbo=-1234.5,
    elbo_error=0.1,
    tail_shape=0.1,
    tail_shape_error=0.05,
    is_certain=True,
    gradients={"start": 5, "steps": 1000, "curvature": 0},
    warnings=["beware."],
)


def test_all_of_it() -> None:
    """Phases without gradients are not spoken of."""
    assert VERDICT.sentences == [
        "ELBO -1,234.500 ± 0.1, within 0.002 ± 0.001 of the family's best nearby (tolerance 0.01).",
        "k̂ = 0.10 ± 0.05: the family is close to the posterior.",
        "Gradients: 1,005 (start 5, steps 1,000).",
        "Warning: beware.",
    ]


def test_gradients_are_added_up() -> None:
    assert VERDICT.num_gradients == 1005


@pytest.mark.parametrize(
    ("tail_shape", "sentence"),
    [
        (GOOD_TAIL, "k̂ = 0.50 ± 0.05: the family is close to the posterior."),
        (0.6, "k̂ = 0.60 ± 0.05: the family is fair; importance sampling would correct it."),
        (FAIR_TAIL, "k̂ = 0.70 ± 0.05: the family is fair; importance sampling would correct it."),
        (
            0.9,
            "k̂ = 0.90 ± 0.05: the family is far from the posterior in its tails; means and sds may be off.",
        ),
        (
            float("inf"),
            "k̂ = inf ± 0.05: the family is far from the posterior in its tails; means and sds may be off.",
        ),
        (float("nan"), "k̂ is not known: there were too few draws."),
    ],
)
def test_tail_shape_in_words(tail_shape: float, sentence: str) -> None:
    assert replace(VERDICT, tail_shape=tail_shape).tail_sentence == sentence


@pytest.mark.parametrize("gap", [float("nan"), float("inf")])
def test_gap_that_is_not_known_is_not_spoken_of(gap: float) -> None:
    assert replace(VERDICT, gap=gap, gap_error=gap).gap_sentence == "ELBO -1,234.500 ± 0.1."


def test_gap_below_zero_is_none() -> None:
    """Its estimate has no bias, so noise can take it there."""
    assert "within 0 ± 0.001 of" in replace(VERDICT, gap=-2e-3).gap_sentence


def test_a_gap_that_is_not_certain_is_never_within() -> None:
    """A budget that ended on the way says how far that seems to be, and what was asked for."""
    sentence = replace(VERDICT, is_certain=False, gap=0.5, gap_error=0.1).gap_sentence
    assert "within" not in sentence
    assert "a gap of 0.5 ± 0.1" in sentence
    assert "the tolerance of 0.01" in sentence


def test_families_that_were_tried_come_first() -> None:
    rungs = [Rung("MeanFieldNormal", -12.0, 0.9, 2_000, 0.25), Rung("FullRankNormal", -10.0, 0.4, 5_000, 1.0)]
    assert replace(VERDICT, rungs=rungs).sentences[0] == (
        "Tried, each from the one before: MeanFieldNormal: ELBO -12.00, k̂ 0.90, 2,000 gradients, 0.2 s; "
        "FullRankNormal: ELBO -10.00, k̂ 0.40, 5,000 gradients, 1.0 s."
    )
    assert replace(VERDICT, rungs=rungs[:1]).sentences == VERDICT.sentences
