"""Why a fit ended: numbers that compiled programs and files hold, and sentences."""

import pytest

from dlrd import Outcome


def test_numbers_stay_what_they_are() -> None:
    """Checkpoints hold them; 0 is that of a fresh array."""
    assert {outcome.name: outcome.value for outcome in Outcome} == {
        "RUNNING": 0,
        "CERTIFIED": 1,
        "AGREED": 2,
        "BUDGET": 3,
        "DIVERGED": 4,
        "INTERRUPTED": 5,
    }


@pytest.mark.parametrize("outcome", Outcome)
def test_each_says_one_thing_in_one_line(outcome: Outcome) -> None:
    assert outcome.sentence.endswith(".")
    assert "\n" not in outcome.sentence
    assert [other for other in Outcome if other.sentence == outcome.sentence] == [outcome]


def test_sentences_say_what_to_do() -> None:
    assert "smaller learning rate" in Outcome.DIVERGED.sentence
