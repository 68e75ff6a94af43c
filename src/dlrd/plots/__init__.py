"""Pictures of a fit. matplotlib is imported nowhere else."""

from dlrd.plots.fit import plot_fit
from dlrd.plots.svg import PanelImage, panel_images

__all__ = ["PanelImage", "panel_images", "plot_fit"]
