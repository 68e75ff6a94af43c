"""The figures. They read result files only; a result that was computed once is drawn as often as needed."""

from dlrd.paper.figures.all_figures import draw

__all__ = ["draw"]
