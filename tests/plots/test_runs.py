"""The picture of a log."""

import numpy as np

from dlrd.plots.runs import MAX_PARAMETERS, plot_runs
from dlrd.simulation.log import Record
from dlrd.simulation.run import Answer, Question, Status


def some_records(dim: int, num: int = 30) -> list[Record]:
    points = np.random.default_rng(0).normal(size=(num, dim))
    return [
        Record(Question(point), Answer(Status.TIME if i % 7 == 0 else Status.OK, 0.5), 1.7e9 + i)
        for i, point in enumerate(points)
    ]


def test_a_panel_for_each_parameter_and_a_cross_for_each_failure() -> None:
    figure = plot_runs(["a", "b", "c"], some_records(3))
    titles = [axes.get_title(loc="left") for axes in figure.axes if axes.axison]
    assert titles == ["Runs", "Seconds a run", "a", "b", "c"]
    assert figure.axes[1].get_title(loc="right") == "mean 0.5"
    for axes in figure.axes[2:5]:
        good, failed = (np.asarray(line.get_xdata()) for line in axes.lines)
        assert failed.tolist() == [0, 7, 14, 21, 28]
        assert len(good) == 25


def test_of_many_parameters_the_first() -> None:
    names = [f"z[{i}]" for i in range(29)]
    figure = plot_runs(names, some_records(29))
    assert len([axes for axes in figure.axes if axes.axison]) == 2 + MAX_PARAMETERS


def test_no_failure_leaves_the_layout_as_it_is() -> None:
    """Drawn, for that is when it is laid out; a layout that fails warns, and warnings are errors."""
    good = [record._replace(answer=record.answer._replace(status=Status.OK)) for record in some_records(2)]
    figure = plot_runs(["a", "b"], good)
    figure.canvas.draw()
    assert [len(axes.lines) for axes in figure.axes] == [1, 1, 1, 1]


def test_one_run() -> None:
    plot_runs(["a"], some_records(1, 1))
