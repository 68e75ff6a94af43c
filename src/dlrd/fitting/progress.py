"""The progress bar: how far the fit is, ELBO, rate, signal-to-noise ratio, decays, time."""

import contextlib
import datetime
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from dlrd.fitting.history import Recorder
from dlrd.models import Model, Simulated

SMOOTHED_STEPS = 1000
"""The ELBO shown is the mean over this many of the newest steps."""

ProgressOption = bool | Callable[[int], None]
"""Whether to show a bar, or a function that is told the steps done."""


class Reading(NamedTuple):
    """What is shown at a moment."""

    num_steps: int  # done
    done: int  # in the unit of the bar
    text: str  # where the fit stands
    has_ended: bool = False  # whether the bar is full, whatever is done


@contextlib.contextmanager
def progress_display(
    progress: ProgressOption, total: int, unit: str, text: str, label: str = "", model: Model | None = None
) -> Iterator[Callable[[Reading], None]]:
    """Shows a bar on the terminal while the context is open, tells a function, or does nothing.

    Args:
        progress: what the caller of the fit wants.
        total: of the bar.
        unit: of `total`; nothing for steps, which all will be done: then the time left is shown.
        text: what is shown at first.
        label: in front of it all.
        model: what is fitted; where it is run outside, a second line tells where its runs stand, at any time.

    Yields:
        A function that shows how far the fit is.
    """
    if callable(progress):
        yield lambda reading: progress(reading.num_steps)
        return
    if not progress:
        yield lambda reading: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.table import Column
    from rich.text import Text

    class Display(Progress):
        """With the line of the runs below the bar."""

        def get_renderables(self) -> Iterable[Any]:
            yield from super().get_renderables()
            if isinstance(model, Simulated):
                yield Text(
                    f"{model.runs_sentence}{_end_sentence(pace, total)}", style="cyan", overflow="fold"
                )

    remaining = TimeRemainingColumn(compact=True, table_column=Column(min_width=5))
    columns = [
        TextColumn(f"{label}{{task.completed:,.0f}}/{{task.total:,.0f}} {unit}".rstrip()),
        BarColumn(bar_width=None, table_column=Column(ratio=1, min_width=6)),
        TimeElapsedColumn() if unit else remaining,
        TextColumn("[cyan]{task.fields[text]}"),
    ]
    pace: list[tuple[float, int]] = []  # when how much was done: first and last
    with Display(*columns, expand=True, refresh_per_second=4) as bar:
        task = bar.add_task("", total=total, text=text)

        def show(reading: Reading) -> None:
            pace[1:] = [(time.time(), reading.done)]
            full = reading.done if reading.has_ended else total
            bar.update(task, completed=reading.done, total=full, text=reading.text)

        yield show


def _end_sentence(pace: Sequence[tuple[float, int]], total: int) -> str:
    """When the whole budget will be spent, at the pace so far."""
    if len(pace) < 2 or pace[0][1] == pace[1][1]:
        return ""
    (begun, first), (now, done) = pace
    end = datetime.datetime.fromtimestamp(now + (now - begun) / (done - first) * (total - done))
    is_today = end.date() == datetime.date.today()
    return f", all spent {end:%H:%M}" if is_today else f", all spent {end:%a %d %b %H:%M}"


def elbo_reading(recorders: Sequence[Recorder], has_error: bool = False) -> str:
    """The ELBO over the newest steps, also with its standard error; of many runs, the medians."""
    newest = [recorder.latest(SMOOTHED_STEPS).elbo for recorder in recorders]
    newest = [elbo[np.isfinite(elbo)] for elbo in newest]
    newest = [elbo for elbo in newest if len(elbo)]
    if not newest:
        return ""
    with np.errstate(over="ignore", invalid="ignore"):  # of a run that is about to explode
        mean = np.median([np.mean(elbo) for elbo in newest])
        error = np.median([np.std(elbo) / np.sqrt(len(elbo)) for elbo in newest])
    text = f"ELBO {mean:,.2f}" if abs(mean) < 1e12 else f"ELBO {mean:.2e}"
    return f"{text} ± {error:.1g}" if has_error else text


def rule_reading(recorders: Sequence[Recorder]) -> str:
    """Rate, signal-to-noise ratio, decays and resets of the latest step; of many runs, the medians."""
    newest = [recorder.latest(1) for recorder in recorders]
    rate, snr, num_decays, num_resets = (
        float(np.median([getattr(record, name)[-1] for record in newest if len(record.elbo)] or [np.nan]))
        for name in ("learning_rate", "snr", "num_decays", "num_resets")
    )
    texts = [
        f" rate {rate:.0e}" if np.isfinite(rate) else "",
        f" SNR {snr:.2g}" if np.isfinite(snr) else "",
        f" decays {num_decays:.0f}" if num_decays > 0 else "",
        f" resets {num_resets:.0f}" if num_resets > 0 else "",
    ]
    return "".join(texts)
