"""A web page about a fit."""

from dlrd.report.page import fit_page

__all__ = ["fit_page"]
