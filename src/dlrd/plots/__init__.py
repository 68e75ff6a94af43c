"""Pictures of a fit. matplotlib is imported nowhere else."""

from dlrd.plots.fit import plot_fit
from dlrd.plots.svg import PanelImage, panel_images
from dlrd.plots.variables import first_of

__all__ = ["PanelImage", "first_of", "panel_images", "plot_fit"]
