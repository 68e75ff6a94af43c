"""Stepping: steps with the rule, and what moves a fit beside them."""
