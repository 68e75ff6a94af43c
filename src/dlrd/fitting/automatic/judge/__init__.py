"""Judging: what draws of its own tell about a fit, and what follows from it."""
