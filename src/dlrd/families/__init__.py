"""Variational families, one a file. Anything that meets `Family` can be fitted."""

from dlrd.families.full_rank import FullRankNormal
from dlrd.families.low_rank import LowRankNormal
from dlrd.families.mean_field import MeanFieldNormal
from dlrd.families.mixture import Mixture
from dlrd.families.protocol import Factorized, Family, FromNoise, Natural, Stratified

__all__ = [
    "Factorized",
    "Family",
    "FromNoise",
    "FullRankNormal",
    "LowRankNormal",
    "MeanFieldNormal",
    "Mixture",
    "Natural",
    "Stratified",
]
