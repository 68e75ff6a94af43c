"""The paper's test problems, one a file."""

from dlrd.paper.problems.logistic import logistic
from dlrd.paper.problems.synthetic import Synthetic, best_full_rank, synthetic

__all__ = ["Synthetic", "best_full_rank", "logistic", "synthetic"]
