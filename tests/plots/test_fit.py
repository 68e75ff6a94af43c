"""The picture of a fit as a whole."""

import dataclasses
import io
import pathlib
from collections.abc import Callable

import jax.numpy as jnp
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import optax
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

import dlrd
from dlrd.fitting import History
from dlrd.plots import plot_fit

ALL_PANELS = ["ELBO", "Learning rate", "Signal-to-noise ratio", "Fitted marginals"]
Fitted = Callable[..., dlrd.Fit]


def adam(rule: optax.GradientTransformation) -> optax.GradientTransformation:
    return optax.chain(optax.scale_by_adam(), rule)


def diverged_fit(fitted: Fitted) -> dlrd.Fit:
    fit = fitted(dlrd.MeanFieldNormal.standard(3), optax.sgd(1.0))
    assert fit.outcome is dlrd.Outcome.DIVERGED
    return fit


def unbegun_fit(fitted: Fitted) -> dlrd.Fit:
    """As an interrupt before the first step leaves it."""
    none = np.zeros(0)
    history = History(none.astype(int), none, none, none, none, none.astype(int), none.astype(int))
    return dataclasses.replace(fitted(dlrd.MeanFieldNormal.standard(3)), num_steps=0, history=history)


def titles_of(figure: Figure) -> list[str]:
    return [axes.get_title(loc="left") for axes in figure.axes]


def png_of(figure: Figure) -> bytes:
    png = io.BytesIO()
    figure.savefig(png, format="png", dpi=50)
    return png.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make_fit", "titles"),
    [
        (lambda fitted: fitted(dlrd.MeanFieldNormal.standard(3), steps=1), [*ALL_PANELS[:2], ALL_PANELS[3]]),
        (lambda fitted: fitted(dlrd.MeanFieldNormal.standard(1), steps=5, num_draws=1), ALL_PANELS),
        (lambda fitted: fitted(dlrd.MeanFieldNormal.standard(1000), steps=50), ALL_PANELS),
        (lambda fitted: fitted(dlrd.MeanFieldNormal.standard(1), steps=20_000), ALL_PANELS),
        (
            lambda fitted: fitted(
                dlrd.MeanFieldNormal(jnp.zeros(2, jnp.bfloat16), jnp.zeros(2, jnp.bfloat16))
            ),
            None,
        ),
        (
            lambda fitted: fitted(
                dlrd.MeanFieldNormal.standard(2), adam(dlrd.dynamic_decay(0.1, 0.9)), steps=9000
            ),
            ALL_PANELS,
        ),
        (diverged_fit, ["ELBO", "Fitted marginals"]),
        (unbegun_fit, ["Fitted marginals"]),
    ],
    ids=["one-step", "one-coordinate", "wide", "long", "bfloat16", "decays", "diverged", "unbegun"],
)
def test_extremes_can_be_drawn(
    make_fit: Callable[[Fitted], dlrd.Fit], titles: list[str] | None, fitted: Fitted
) -> None:
    figure = plot_fit(make_fit(fitted))
    if titles is not None:
        assert titles_of(figure) == titles
    assert png_of(figure)
    assert_readable(figure)


@pytest.mark.slow
def test_a_flow_can_be_drawn(flow_fit: dlrd.Fit) -> None:
    figure = plot_fit(flow_fit)
    assert titles_of(figure) == ALL_PANELS
    assert_readable(figure)


def assert_readable(figure: Figure) -> None:
    """All text lies within the figure, and a panel's title and note lie beside each other."""
    figure.draw_without_rendering()
    for text in figure.findobj(lambda artist: isinstance(artist, Text) and artist.get_text()):
        if text.get_visible() and not is_tick_outside(text, figure):
            box = text.get_window_extent()
            assert box.x0 >= -1, text
            assert box.y0 >= -1, text
            assert box.x1 <= figure.bbox.width + 1, text
            assert box.y1 <= figure.bbox.height + 1, text
    for axes in figure.axes:
        left, right = axes.title, axes._right_title
        if right.get_text():
            assert left.get_window_extent().x1 < right.get_window_extent().x0


def is_tick_outside(text: Text, figure: Figure) -> bool:
    """Whether this is a label that matplotlib keeps for a tick beyond the axis' ends, and does not draw."""
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
                if text in (tick.label1, tick.label2):
                    return not low <= tick.get_loc() <= high
    return False


def test_an_ordinary_fit_has_all_panels_and_readable_text(fit: dlrd.Fit, figure: Figure) -> None:
    assert titles_of(figure) == ALL_PANELS
    assert_readable(figure)
    title = figure.get_suptitle()
    assert title.startswith("FullRankNormal after 3,000 steps. ")
    assert title.replace("\n", " ").endswith(fit.outcome.sentence)


@pytest.mark.parametrize(
    ("optimizer", "titles"),
    [
        (optax.adam(1e-2), ["ELBO", "Fitted marginals"]),
        (adam(dlrd.power_decay(1e-1, 0.5)), ["ELBO", "Learning rate", "Fitted marginals"]),
    ],
    ids=["nothing", "no-snr"],
)
def test_what_an_optimizer_does_not_report_gets_no_panel(
    optimizer: optax.GradientTransformation, titles: list[str], fitted: Fitted
) -> None:
    assert titles_of(plot_fit(fitted(dlrd.MeanFieldNormal.standard(2), optimizer, steps=20))) == titles


def test_nothing_global_changes_nor_matters(fit: dlrd.Fit, figure: Figure) -> None:
    with plt.style.context("dark_background"):
        settings = dict.copy(mpl.rcParams)  # RcParams' own methods would choose a backend
        other = plot_fit(fit)
        assert dict.copy(mpl.rcParams) == settings
    assert plt.get_fignums() == []
    assert png_of(other) == png_of(figure)


def test_fit_writes_the_picture(
    fit: dlrd.Fit, figure: Figure, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dlrd.plots.plot_fit", lambda given: figure if given is fit else None)
    for ending, start in [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")]:
        path = tmp_path / f"fit.{ending}"
        assert fit.plot(path) is figure
        assert path.read_bytes().startswith(start)


def test_notebooks_show_the_picture(figure: Figure) -> None:
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_bad_input_is_named() -> None:
    with pytest.raises(TypeError, match=r"fit must be what dlrd\.fit returns, got list"):
        plot_fit([])  # pyright: ignore[reportArgumentType] - the wrong type is the test
