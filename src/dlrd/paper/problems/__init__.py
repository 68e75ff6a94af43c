"""The paper's test problems, one a file."""

from dlrd.paper.problems.logistic import logistic
from dlrd.paper.problems.synthetic import Synthetic, synthetic

__all__ = ["Synthetic", "logistic", "synthetic"]
