"""The driver: compiled chunks of steps, and what happens between them."""

from dlrd.fitting.api import fit, fit_many
from dlrd.fitting.history import History
from dlrd.fitting.outcome import Outcome
from dlrd.fitting.result import Fit
from dlrd.fitting.saved import load
from dlrd.fitting.summary import Summary

__all__ = ["Fit", "History", "Outcome", "Summary", "fit", "fit_many", "load"]
