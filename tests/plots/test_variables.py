"""The fitted variables of a model, a panel each."""

import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import dlrd
from dlrd.models import FunctionModel
from dlrd.plots import plot_fit
from dlrd.plots.variables import MAX_ENTRIES, MAX_VARIABLES, NUM_DRAWS, first_of, variable_panels

PanelsFn = Callable[[dlrd.Fit], dict[str, Axes]]


class Ward(FunctionModel):
    """A scale, a few effects with labels, and many without; further variables if asked for."""

    dims = {"effects": ("dose",)}  # noqa: RUF012
    coords = {"dose": np.array(["low $", "high $"])}  # noqa: RUF012

    def __init__(self, num_more: int = 0, num_many: int = 100) -> None:
        super().__init__(lambda z: -z @ z, (5,))
        self.num_more, self.num_many = num_more, num_many

    def constrained(self, draws: jax.Array) -> dict[str, jax.Array]:
        many = jnp.tile(draws[:, 3:4], (1, self.num_many)) + jnp.arange(self.num_many)
        variables = {"scale": jnp.exp(draws[:, 0]), "effects": draws[:, 1:3], "many": many}
        return variables | {f"more {i}": draws[:, 4] for i in range(self.num_more)}


@pytest.fixture(scope="module")
def ward_fit(fit: dlrd.Fit) -> dlrd.Fit:
    return dataclasses.replace(fit, model=Ward())


@pytest.fixture(scope="module")
def panels(ward_fit: dlrd.Fit, panels_of: PanelsFn) -> dict[str, Axes]:
    return panels_of(ward_fit)


def test_variables_take_the_place_of_coordinates(panels: dict[str, Axes]) -> None:
    assert list(panels)[3:] == ["scale", "effects", "many"]


def test_a_number_is_shown_by_its_density(ward_fit: dlrd.Fit, panels: dict[str, Axes]) -> None:
    draws = np.asarray(ward_fit.sample(0, NUM_DRAWS)["scale"], float)
    axes = panels["scale"]
    heights, edges, _ = axes.patches[0].get_data()  # pyright: ignore[reportAttributeAccessIssue]
    # All but what lies beyond the outer quantiles.
    assert heights.sum() == pytest.approx(0.998 * NUM_DRAWS, abs=2)
    assert (edges[0], edges[-1]) == pytest.approx(np.quantile(draws, [0.001, 0.999]).tolist())
    interval, mean = axes.lines
    np.testing.assert_allclose(interval.get_xdata(), np.quantile(draws, [0.05, 0.95]))
    np.testing.assert_allclose(mean.get_xdata(), [draws.mean()])


def test_few_entries_have_their_labels(ward_fit: dlrd.Fit, panels: dict[str, Axes]) -> None:
    axes = panels["effects"]
    labels = {label.get_text(): label for label in axes.get_yticklabels()}
    assert list(labels) == ["effects[low $]", "effects[high $]"]
    assert not any(label.get_parse_math() for label in labels.values())
    np.testing.assert_allclose(axes.lines[0].get_xdata(), ward_fit.summary("effects").mean)
    (intervals,) = axes.collections
    ends = np.array([path.vertices[:, 0] for path in intervals.get_paths()])  # pyright: ignore
    np.testing.assert_allclose(ends, ward_fit.summary("effects").quantiles[[0, 2]].T)


def test_many_entries_are_thinned(panels: dict[str, Axes]) -> None:
    axes = panels["many"]
    shown = np.asarray(axes.lines[0].get_xdata())
    assert len(shown) == MAX_ENTRIES
    assert (shown[0], shown[-1]) == (0, 99)
    assert axes.get_title(loc="right") == "mean, 5–95 %, 60 of 100"


def test_axes_that_are_far_from_zero_do_not_show_it(panels_of: PanelsFn, ward_fit: dlrd.Fit) -> None:
    class FarAway(Ward):
        def constrained(self, draws: jax.Array) -> dict[str, jax.Array]:
            return {"year": 2000 + draws[:, :2], "level": 500 + jnp.tile(draws, (1, 4))}

    panels = panels_of(dataclasses.replace(ward_fit, model=FarAway()))
    assert panels["year"].get_xlim()[0] > 1900
    assert panels["level"].get_ylim()[0] > 400


def test_a_large_model_stays_readable(ward_fit: dlrd.Fit) -> None:
    """Of 303 variables a few get panels, and the figure says so."""
    large = dataclasses.replace(ward_fit, model=Ward(num_more=300))
    assert len(variable_panels(large)) == MAX_VARIABLES
    assert first_of(large) == "Shown are the first 6 of 303 variables."
    assert first_of(ward_fit) == ""
    figure = plot_fit(large)
    assert len(figure.axes) == 3 + MAX_VARIABLES
    assert figure.get_suptitle().endswith("variables.")


def test_a_fit_from_a_file_shows_its_intervals(
    ward_fit: dlrd.Fit, panels_of: PanelsFn, tmp_path: pathlib.Path
) -> None:
    ward_fit.save(tmp_path / "fit.dlrd")
    panels = panels_of(dlrd.load(tmp_path / "fit.dlrd"))
    assert list(panels)[3:] == ["scale", "effects", "many"]
    np.testing.assert_allclose(panels["scale"].lines[0].get_xdata(), ward_fit.summary("scale").mean)


def test_what_is_not_finite_gets_no_panel(ward_fit: dlrd.Fit) -> None:
    class Broken(Ward):
        def constrained(self, draws: jax.Array) -> dict[str, jax.Array]:
            return {"fine": draws[:, 0], "broken": jnp.nan * draws[:, 0], "none": draws[:, :0]}

    broken: Any = dataclasses.replace(ward_fit, model=Broken())
    assert [panel.title for panel in variable_panels(broken)] == ["fine"]
    variable_panels(broken)[0].draw(Figure().subplots())
