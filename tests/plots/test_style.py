"""How the pictures look."""

import itertools

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_rgb

from dlrd.plots.style import GRID, INK, LINE, MARK, MUTED, house_style


def luminance(color: str) -> float:
    """Relative luminance as the accessibility guidelines of the web define it."""
    channels = np.array(to_rgb(color))
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(left: str, right: str) -> float:
    lighter, darker = sorted([luminance(left), luminance(right)], reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def test_text_and_lines_stand_out_from_paper() -> None:
    """The guidelines want 4.5 of text, 3 of lines; a grid should stay behind."""
    assert min(contrast(color, "white") for color in (INK, MUTED)) >= 4.5
    assert min(contrast(color, "white") for color in (LINE, MARK)) >= 3
    assert contrast(GRID, "white") < 1.5


def test_colours_are_told_apart_without_red_or_green() -> None:
    """Those who lack either still see blue beside the rest: line and mark lie far apart there."""
    blue = {color: to_rgb(color)[2] for color in (LINE, MARK)}
    assert blue[LINE] - blue[MARK] > 0.5
    assert len({INK, MUTED, GRID, LINE, MARK}) == 5
    for left, right in itertools.combinations((INK, MUTED, LINE, MARK, GRID), 2):
        assert np.linalg.norm(np.subtract(to_rgb(left), to_rgb(right))) > 0.25, (left, right)


def test_the_style_holds_whatever_the_users_is_and_goes_at_the_end() -> None:
    with mpl.rc_context({"text.color": "#ff0000", "font.size": 33.0, "lines.linewidth": 7.0}):
        before = dict.copy(mpl.rcParams)
        with house_style(**{"svg.hashsalt": "salt"}):
            assert mpl.rcParams["text.color"] == INK
            assert mpl.rcParams["font.size"] == 10
            assert mpl.rcParams["lines.linewidth"] == mpl.rcParamsDefault["lines.linewidth"]
            assert mpl.rcParams["svg.hashsalt"] == "salt"
        assert dict.copy(mpl.rcParams) == before


def test_the_style_goes_after_an_error_too() -> None:
    before = dict.copy(mpl.rcParams)
    with pytest.raises(ZeroDivisionError), house_style():
        1 / 0  # noqa: B018 - the error is the test
    assert dict.copy(mpl.rcParams) == before
