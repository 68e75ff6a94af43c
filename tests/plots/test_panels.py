"""What each panel shows of a fit."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
from matplotlib.axes import Axes

import dlrd
from dlrd.plots.panels import MAX_COORDINATES, fit_panels

STEPS = ["ELBO", "Learning rate", "Signal-to-noise ratio"]
PanelsFn = Callable[[dlrd.Fit], dict[str, Axes]]


@pytest.fixture(scope="module")
def panels(fit: dlrd.Fit, panels_of: PanelsFn) -> dict[str, Axes]:
    return panels_of(fit)


def test_panels_show_the_fit(fit: dlrd.Fit, panels: dict[str, Axes]) -> None:
    assert list(panels) == [*STEPS, "Fitted marginals"]
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


def test_decays_are_marked_on_each_axis_of_steps(fit: dlrd.Fit, panels: dict[str, Axes]) -> None:
    for title in STEPS:
        (marks,) = panels[title].collections
        assert [path.vertices[0, 0] for path in marks.get_paths()] == fit.history.decays.tolist()
    assert panels["Learning rate"].get_title(loc="right") == f"dotted: {len(fit.history.decays)} decays"


def test_resets_are_marked_and_what_they_undid_does_not_flatten_the_rest(
    fit: dlrd.Fit, with_history: Callable[..., dlrd.Fit], panels_of: PanelsFn
) -> None:
    elbo = fit.history.elbo.copy()
    elbo[500:600] = -1e20
    axes = panels_of(with_history(fit, elbo=elbo, resets=np.array([600])))
    assert axes["ELBO"].get_ylim()[0] > -1e6
    assert axes["Learning rate"].get_title(loc="right").endswith("decays, solid: 1 reset")
    _, marks = axes["Learning rate"].collections
    assert [path.vertices[0, 0] for path in marks.get_paths()] == [600]


def test_held_readings_are_not_drawn_as_measured(fit: dlrd.Fit, panels: dict[str, Axes]) -> None:
    """Right after a decay the rule does not look yet, and its last reading stays."""
    course = panels["Signal-to-noise ratio"].lines[0]
    steps, shown = (np.asarray(data) for data in course.get_data())
    after_first = (steps > fit.history.decays[0]) & (steps < fit.history.decays[0] + 10)
    assert np.all(np.isnan(shown[after_first]))


@pytest.mark.parametrize(
    ("missing", "titles"),
    [
        (["snr"], ["ELBO", "Learning rate", "Fitted marginals"]),
        (["snr", "learning_rate"], ["ELBO", "Fitted marginals"]),
        (["snr", "learning_rate", "elbo"], ["Fitted marginals"]),
    ],
)
def test_what_is_not_reported_gets_no_panel(
    fit: dlrd.Fit, with_history: Callable[..., dlrd.Fit], missing: list[str], titles: list[str]
) -> None:
    nothing = np.full(len(fit.history.step), np.nan)
    silent = with_history(fit, **dict.fromkeys(missing, nothing))
    assert [panel.title for panel in fit_panels(silent)] == titles


def test_infinite_ratios_are_left_out(
    fit: dlrd.Fit, with_history: Callable[..., dlrd.Fit], panels_of: PanelsFn
) -> None:
    is_early = fit.history.step < 100
    straight = with_history(fit, snr=np.where(is_early, np.inf, fit.history.snr))
    axes = panels_of(straight)["Signal-to-noise ratio"]
    course = axes.lines[0]
    assert np.all(np.isfinite(axes.get_ylim()))
    assert np.nanmin(np.where(np.isnan(course.get_ydata()), np.nan, course.get_xdata())) == 100
    only_infinite = with_history(fit, snr=np.full_like(fit.history.snr, np.inf))
    assert "Signal-to-noise ratio" not in [panel.title for panel in fit_panels(only_infinite)]


def test_awful_first_values_do_not_flatten_the_rest(
    fit: dlrd.Fit, with_history: Callable[..., dlrd.Fit], panels_of: PanelsFn, panels: dict[str, Axes]
) -> None:
    elbo = fit.history.elbo.copy()
    elbo[:3] = [-1e30, -1e20, -1e10]
    axes = panels_of(with_history(fit, elbo=elbo))["ELBO"]
    assert axes.get_ylim() == panels["ELBO"].get_ylim()
    assert axes.get_title(loc="right") == "starts at −1e+30"


def test_many_coordinates_are_thinned(fit: dlrd.Fit, panels_of: PanelsFn) -> None:
    wide = dataclasses.replace(fit, family=dlrd.MeanFieldNormal.standard(1000))
    axes = panels_of(wide)["Fitted marginals"]
    shown = np.asarray(axes.lines[-1].get_xdata())
    assert len(shown) == MAX_COORDINATES
    assert (shown[0], shown[-1]) == (0, 999)
    assert axes.get_title(loc="right") == "mean ± 2 sd, 60 of 1,000"


@pytest.mark.slow
def test_families_without_moments_are_drawn_from_draws(flow_fit: dlrd.Fit, panels_of: PanelsFn) -> None:
    means = panels_of(flow_fit)["Fitted marginals"].lines[-1]
    np.testing.assert_array_equal(means.get_ydata(), flow_fit.summary().mean)


def test_bad_input_is_named() -> None:
    with pytest.raises(TypeError, match=r"fit must be what dlrd\.fit returns, got list"):
        fit_panels([])  # pyright: ignore[reportArgumentType] - the wrong type is the test
