"""Which protocols the families meet: what the gradients and fits go by."""

import jax
import numpy as np
import pytest

from dlrd import FullRankNormal, LowRankNormal, MeanFieldNormal, Mixture, SparseNormal
from dlrd.families import (
    Certifiable,
    Factorized,
    Family,
    FromNoise,
    HasCouplings,
    KnowsNoise,
    Natural,
    Patterned,
    SecondOrder,
    Settling,
    Startable,
    Stratified,
    Teachable,
)
from dlrd.families.coupled import Coupled
from dlrd.families.couplings import couplings
from dlrd.families.densely_coupled import DenselyCoupled
from dlrd.families.pattern import Pattern
from dlrd.families.sparse_curvature import SparseCurvature

PROTOCOLS = (
    Certifiable,
    Factorized,
    Family,
    FromNoise,
    HasCouplings,
    KnowsNoise,
    Natural,
    Patterned,
    SecondOrder,
    Settling,
    Startable,
    Stratified,
    Teachable,
)
NORMAL = {Family, FromNoise, KnowsNoise, Natural}


class Bare:
    """What a family must have at the least."""

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        return jax.random.normal(key, sample_shape)

    def log_prob(self, x: jax.Array) -> jax.Array:
        return -(x**2)


def coupled() -> Coupled:
    pairs = couplings(Pattern(2, np.array([1]), np.array([0])))
    assert pairs is not None
    normal = SparseNormal([0.0, 0.0], [1.0, 1.0], [0.0], pairs.elimination)
    return Coupled(normal, pairs, SparseNormal)


def densely_coupled() -> DenselyCoupled:
    return DenselyCoupled.at(np.zeros(2), SparseCurvature.unit(coupled().couplings), float, SparseNormal)


@pytest.mark.parametrize(
    ("family", "met"),
    [
        (Bare(), {Family}),
        (MeanFieldNormal.standard(2), NORMAL | {Factorized, Startable}),
        (MeanFieldNormal.standard(2).as_start(), NORMAL | {Certifiable, Factorized, HasCouplings}),
        (FullRankNormal.standard(2), NORMAL | {Certifiable, Startable}),
        (FullRankNormal.standard(2).as_start(), NORMAL | {Certifiable, Teachable}),
        (LowRankNormal.standard(2), NORMAL | {Certifiable, Startable}),
        (SparseNormal.standard(2), NORMAL | {Certifiable, Patterned, Startable}),
        (coupled(), NORMAL | {Certifiable, HasCouplings, SecondOrder}),
        (densely_coupled(), NORMAL | {Certifiable, HasCouplings, Settling}),
        (Mixture([MeanFieldNormal.standard(2)] * 2), {Family, Stratified}),
        (jax.random, set()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_family_meets_its_protocols(family: object, met: set[type]):
    assert {protocol for protocol in PROTOCOLS if isinstance(family, protocol)} == met
