"""The best families for the problems that have no closed form, with the errors of what is known of them."""

from dlrd.paper.references.field import Reference, field_reference
from dlrd.paper.references.logistic import logistic_reference, stochastic_logistic_reference

__all__ = ["Reference", "field_reference", "logistic_reference", "stochastic_logistic_reference"]
