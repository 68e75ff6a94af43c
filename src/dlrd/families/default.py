"""The family of a fit that is given none."""

from dlrd.families.curvature import MAX_WHOLE
from dlrd.families.full_rank import FullRankNormal
from dlrd.families.mean_field import MeanFieldNormal


def default_family(dim: int) -> FullRankNormal | MeanFieldNormal:
    """N(0, I) of full rank, or mean-field in more dimensions than the whole curvature is worth its cost."""
    return (FullRankNormal if dim <= MAX_WHOLE else MeanFieldNormal).standard(dim)
