"""The picture of a fit: its course and its result."""

import io
import textwrap

from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from dlrd.fitting.result import Fit
from dlrd.plots.panels import fit_panels
from dlrd.plots.style import house_style
from dlrd.plots.variables import first_of

TITLE_WIDTH = 110
"""Characters a line."""


class _ShownFigure(Figure):
    """A figure that notebooks show by themselves, as pyplot's are."""

    def _repr_png_(self) -> bytes:
        png = io.BytesIO()
        self.savefig(png, format="png")
        return png.getvalue()


def plot_fit(fit: Fit) -> Figure:
    """One figure with the ELBO, the learning rate, the signal-to-noise ratio and what was fitted.

    Of a model with variables of its own, the first six on their natural scale, a panel each: single numbers
    by their densities, arrays entry by entry. Of any other model, means and spreads of all coordinates.

    The axis of the ELBO leaves out the first tenth of the steps where that lies far below the rest. What the
    optimiser does not report gets no panel. pyplot is not used: nothing is left open, no setting is changed.

    Args:
        fit: what `dlrd.fit` returned.

    Returns:
        The figure; `figure.savefig("fit.png")` writes it.

    Example:
        >>> import dlrd
        >>> from dlrd.plots import plot_fit
        >>> q = dlrd.MeanFieldNormal.standard(2)
        >>> fit = dlrd.fit(lambda z: -((z - 3) ** 4).sum(), q, key=0, progress=False)
        >>> [axes.get_title(loc="left") for axes in plot_fit(fit).axes]
        ['ELBO', 'Learning rate', 'Signal-to-noise ratio', 'Fitted marginals']
    """
    panels = fit_panels(fit)
    num_rows = -(-len(panels) // 2)
    with house_style():
        layout = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.08, hspace=0.06, wspace=0.04)
        figure = _ShownFigure(figsize=(10, 0.6 + 3.2 * num_rows), layout=layout)
        grid = figure.add_gridspec(num_rows, 2)
        for i, panel in enumerate(panels):
            is_alone = i % 2 == 0 and i == len(panels) - 1
            axes = figure.add_subplot(grid[i // 2, :] if is_alone else grid[i // 2, i % 2])
            axes.set_title(panel.title, parse_math=False)
            panel.draw(axes)
        steps = f"{fit.num_steps:,} step{'s' * (fit.num_steps != 1)}"
        title = f"{type(fit.family).__name__} after {steps}. {fit.outcome.sentence} {first_of(fit)}".rstrip()
        figure.suptitle(textwrap.fill(title, TITLE_WIDTH), x=0.01, horizontalalignment="left")
        figure.draw_without_rendering()  # makes the ticks while the style holds
    return figure
