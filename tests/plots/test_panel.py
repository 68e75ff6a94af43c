"""What all panels share."""

from matplotlib.figure import Figure

from dlrd.plots.panel import Panel, add_note, count, count_axis


def test_notes_stand_right_of_the_title() -> None:
    axes = Figure().subplots()
    Panel("title", lambda axes: add_note(axes, "a note", "red")).draw(axes)
    assert axes.get_title(loc="right") == "a note"
    assert axes.get_title(loc="left") == axes.get_title(loc="center") == ""


def test_counted_things_are_within_the_axis() -> None:
    axes = Figure().subplots()
    count_axis(axes, 1000, "entry")
    low, high = axes.get_xlim()
    assert low < 0
    assert high > 999
    assert all(tick == int(tick) for tick in axes.get_xticks())
    assert axes.get_xlabel() == "entry"
    assert count(12345.0, None) == "12,345"
