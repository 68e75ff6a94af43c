"""Variational families, one a file. Anything that meets `Family` can be fitted."""

from dlrd.families.certifiable import BoundsGap, Certifiable, Charted, Correctable, Teachable
from dlrd.families.default import default_family
from dlrd.families.forms import log_prob_of, member_of, settled, started
from dlrd.families.full_rank import FullRankNormal
from dlrd.families.low_rank import LowRankNormal
from dlrd.families.mean_field import MeanFieldNormal
from dlrd.families.mixture import Mixture
from dlrd.families.protocol import (
    Composed,
    Factorized,
    Family,
    FromNoise,
    HasCouplings,
    HasCovariance,
    KnowsNoise,
    Moments,
    Natural,
    Patterned,
    Quantiled,
    Refinable,
    SecondOrder,
    Settling,
    Startable,
    Stratified,
    Structured,
    WorkingForm,
)
from dlrd.families.sparse import SparseNormal
from dlrd.families.trainable import Untrained, frozen, split

LOADABLE = {cls.__name__: cls for cls in (FullRankNormal, LowRankNormal, MeanFieldNormal, SparseNormal)}
"""Families that `dlrd.load` knows by name; of any other it is given one of the same structure."""

__all__ = [
    "LOADABLE",
    "BoundsGap",
    "Certifiable",
    "Charted",
    "Composed",
    "Correctable",
    "Factorized",
    "Family",
    "FromNoise",
    "FullRankNormal",
    "HasCouplings",
    "HasCovariance",
    "KnowsNoise",
    "LowRankNormal",
    "MeanFieldNormal",
    "Mixture",
    "Moments",
    "Natural",
    "Patterned",
    "Quantiled",
    "Refinable",
    "SecondOrder",
    "Settling",
    "SparseNormal",
    "Startable",
    "Stratified",
    "Structured",
    "Teachable",
    "Untrained",
    "WorkingForm",
    "default_family",
    "frozen",
    "log_prob_of",
    "member_of",
    "settled",
    "split",
    "started",
]
