"""Nine posteriors with reference results, and the best normals for them."""

from dlrd.bench.posteriors.models import Posterior, posteriors

__all__ = ["Posterior", "posteriors"]
