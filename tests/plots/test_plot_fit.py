"""The picture of a fit."""

import dataclasses
import functools
import io
import pathlib
import re

import flowjax.distributions
import flowjax.flows
import jax
import jax.numpy as jnp
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import optax
import pytest
from jaxtyping import Array
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

import dlrd
from dlrd.fitting import History
from dlrd.plots import panel_images, plot_fit
from dlrd.plots.panels import MAX_COORDINATES

ALL_PANELS = ["ELBO", "Learning rate", "Signal-to-noise ratio", "Fitted marginals"]


def adam(rule: optax.GradientTransformation) -> optax.GradientTransformation:
    return optax.chain(optax.scale_by_adam(), rule)


def log_density(z: Array) -> Array:
    return -0.5 * jnp.sum((z - 3.0) ** 2) - 0.01 * jnp.sum(z**4)


def fitted(
    family: dlrd.families.Family,
    optimizer: optax.GradientTransformation | None = None,
    steps: int = 300,
    num_draws: int = 8,
) -> dlrd.Fit:
    optimizer = adam(dlrd.dynamic_decay(1e-1)) if optimizer is None else optimizer
    return dlrd.fit(
        log_density, family, key=0, optimizer=optimizer, steps=steps, num_draws=num_draws, progress=False
    )


def with_history(fit: dlrd.Fit, **columns: np.ndarray) -> dlrd.Fit:
    return dataclasses.replace(fit, history=dataclasses.replace(fit.history, **columns))


@functools.cache
def flow_fit() -> dlrd.Fit:
    base = flowjax.distributions.Normal(jnp.zeros(2), 1.0)
    flow = flowjax.flows.masked_autoregressive_flow(
        jax.random.key(0), base_dist=base, nn_width=4, nn_depth=1, flow_layers=1
    )
    return fitted(flow, steps=50)


def diverged_fit() -> dlrd.Fit:
    fit = fitted(dlrd.MeanFieldNormal.standard(3), optax.sgd(1.0))
    assert fit.outcome is dlrd.Outcome.DIVERGED
    return fit


def unbegun_fit() -> dlrd.Fit:
    """As an interrupt before the first step leaves it."""
    none = np.zeros(0)
    history = History(none.astype(int), none, none, none, none, none.astype(int))
    return dataclasses.replace(fitted(dlrd.MeanFieldNormal.standard(3)), num_steps=0, history=history)


def panels_of(figure: Figure) -> dict[str, Axes]:
    return {axes.get_title(loc="left"): axes for axes in figure.axes}


def png_of(figure: Figure) -> bytes:
    png = io.BytesIO()
    figure.savefig(png, format="png", dpi=50)
    return png.getvalue()


@pytest.fixture(scope="module")
def fit() -> dlrd.Fit:
    fit = fitted(dlrd.FullRankNormal.standard(5), steps=3000)
    assert len(fit.history.decays) > 1
    return fit


def test_panels_show_the_fit(fit: dlrd.Fit) -> None:
    panels = panels_of(plot_fit(fit))
    assert list(panels) == ALL_PANELS
    low, high = panels["ELBO"].get_ylim()
    assert low < fit.elbo < high
    (rate,) = panels["Learning rate"].lines
    assert set(rate.get_ydata()) == set(fit.history.learning_rate)
    _, at_decays, threshold = panels["Signal-to-noise ratio"].lines
    assert np.all(np.asarray(at_decays.get_ydata()) < 1)
    assert list(threshold.get_ydata()) == [1, 1]
    means = panels["Fitted marginals"].lines[-1]
    np.testing.assert_allclose(means.get_ydata(), fit.family.mean, rtol=1e-6)
    (spreads,) = panels["Fitted marginals"].collections
    heights = [np.ptp(path.vertices[:, 1]) for path in spreads.get_paths()]
    np.testing.assert_allclose(heights, 4 * fit.family.std, rtol=1e-5)


def test_decays_are_marked_on_each_axis_of_steps(fit: dlrd.Fit) -> None:
    panels = panels_of(plot_fit(fit))
    for title in ALL_PANELS[:3]:
        (marks,) = panels[title].collections
        assert [path.vertices[0, 0] for path in marks.get_paths()] == fit.history.decays.tolist()
    assert panels["Learning rate"].get_title(loc="right") == f"dotted: {len(fit.history.decays)} decays"


def test_held_readings_are_not_drawn_as_measured(fit: dlrd.Fit) -> None:
    """Right after a decay the rule does not look yet, and its last reading stays."""
    course = panels_of(plot_fit(fit))["Signal-to-noise ratio"].lines[0]
    steps, shown = (np.asarray(data) for data in course.get_data())
    after_first = (steps > fit.history.decays[0]) & (steps < fit.history.decays[0] + 10)
    assert np.all(np.isnan(shown[after_first]))


@pytest.mark.parametrize(
    ("optimizer", "titles"),
    [
        (optax.adam(1e-2), ["ELBO", "Fitted marginals"]),
        (adam(dlrd.power_decay(1e-1, 0.5)), ["ELBO", "Learning rate", "Fitted marginals"]),
    ],
    ids=["nothing", "no-snr"],
)
def test_what_is_not_reported_gets_no_panel(
    optimizer: optax.GradientTransformation, titles: list[str]
) -> None:
    assert list(panels_of(plot_fit(fitted(dlrd.MeanFieldNormal.standard(2), optimizer)))) == titles


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make_fit", "titles"),
    [
        (lambda: fitted(dlrd.MeanFieldNormal.standard(3), steps=1), [*ALL_PANELS[:2], ALL_PANELS[3]]),
        (lambda: fitted(dlrd.MeanFieldNormal.standard(1), steps=5, num_draws=1), ALL_PANELS),
        (lambda: fitted(dlrd.MeanFieldNormal.standard(1000), steps=50), ALL_PANELS),
        (lambda: fitted(dlrd.MeanFieldNormal.standard(1), steps=20_000), ALL_PANELS),
        (lambda: fitted(dlrd.MeanFieldNormal(jnp.zeros(2, jnp.bfloat16), jnp.zeros(2, jnp.bfloat16))), None),
        (
            lambda: fitted(dlrd.MeanFieldNormal.standard(2), adam(dlrd.dynamic_decay(0.1, 0.9)), steps=9000),
            ALL_PANELS,
        ),
        (flow_fit, ALL_PANELS),
        (diverged_fit, ["ELBO", "Fitted marginals"]),
        (unbegun_fit, ["Fitted marginals"]),
    ],
    ids=["one-step", "one-coordinate", "wide", "long", "bfloat16", "decays", "flow", "diverged", "unbegun"],
)
def test_extremes_can_be_drawn(make_fit, titles: list[str] | None) -> None:
    fit = make_fit()
    figure = plot_fit(fit)
    if titles is not None:
        assert list(panels_of(figure)) == titles
    assert png_of(figure)
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


def test_infinite_ratios_are_left_out(fit: dlrd.Fit) -> None:
    is_early = fit.history.step < 100
    straight = with_history(fit, snr=np.where(is_early, np.inf, fit.history.snr))
    figure = plot_fit(straight)
    course = panels_of(figure)["Signal-to-noise ratio"].lines[0]
    assert np.all(np.isfinite(panels_of(figure)["Signal-to-noise ratio"].get_ylim()))
    assert np.nanmin(np.where(np.isnan(course.get_ydata()), np.nan, course.get_xdata())) == 100
    only_infinite = with_history(fit, snr=np.full_like(fit.history.snr, np.inf))
    assert "Signal-to-noise ratio" not in panels_of(plot_fit(only_infinite))


def test_awful_first_values_do_not_flatten_the_rest(fit: dlrd.Fit) -> None:
    elbo = fit.history.elbo.copy()
    elbo[:3] = [-1e30, -1e20, -1e10]
    axes = panels_of(plot_fit(with_history(fit, elbo=elbo)))["ELBO"]
    assert axes.get_ylim() == panels_of(plot_fit(fit))["ELBO"].get_ylim()
    assert axes.get_title(loc="right") == "starts at −1e+30"


def test_many_coordinates_are_thinned() -> None:
    fit = fitted(dlrd.MeanFieldNormal.standard(1000), steps=10)
    axes = panels_of(plot_fit(fit))["Fitted marginals"]
    shown = np.asarray(axes.lines[-1].get_xdata())
    assert len(shown) == MAX_COORDINATES
    assert (shown[0], shown[-1]) == (0, 999)
    assert axes.get_title(loc="right") == "mean ± 2 sd, 60 of 1,000"


@pytest.mark.slow
def test_families_without_moments_are_drawn_from_draws() -> None:
    fit = flow_fit()
    means = panels_of(plot_fit(fit))["Fitted marginals"].lines[-1]
    np.testing.assert_array_equal(means.get_ydata(), fit.summary().mean)


def test_nothing_global_changes_nor_matters(fit: dlrd.Fit) -> None:
    settings = dict.copy(mpl.rcParams)  # RcParams' own methods would choose a backend
    picture = png_of(plot_fit(fit))
    assert dict.copy(mpl.rcParams) == settings
    assert plt.get_fignums() == []
    with plt.style.context("dark_background"):
        figure = plot_fit(fit)
        assert panel_images(fit)[0].svg
    assert png_of(figure) == picture


@pytest.mark.parametrize(("ending", "start"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")])
def test_fit_writes_the_picture(fit: dlrd.Fit, tmp_path: pathlib.Path, ending: str, start: bytes) -> None:
    path = tmp_path / f"fit.{ending}"
    fit.plot(path)
    assert path.read_bytes().startswith(start)


def test_web_pages_show_the_same_panels(fit: dlrd.Fit) -> None:
    images = panel_images(fit)
    assert [image.title for image in images] == ALL_PANELS
    assert panel_images(fit) == images
    for image in images:
        assert image.svg.startswith("<svg viewBox=")
        assert "var(--line)" in image.svg
        assert not re.search(r"#[0-9a-f]{6}\b", image.svg), "a colour that does not follow the page"


def test_notebooks_show_the_picture(fit: dlrd.Fit) -> None:
    assert fit.plot()._repr_png_().startswith(b"\x89PNG")


def test_bad_input_is_named() -> None:
    with pytest.raises(TypeError, match=r"fit must be what dlrd\.fit returns, got list"):
        plot_fit([])  # pyright: ignore[reportArgumentType] - the wrong type is the test
