"""Which protocols the families meet: what the gradients and fits go by."""

import jax
import pytest

from dlrd import FullRankNormal, LowRankNormal, MeanFieldNormal, Mixture
from dlrd.families import Factorized, Family, FromNoise, Natural, Stratified

PROTOCOLS = (Family, Factorized, FromNoise, Natural, Stratified)


class Bare:
    """What a family must have at the least."""

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        return jax.random.normal(key, sample_shape)

    def log_prob(self, x: jax.Array) -> jax.Array:
        return -(x**2)


@pytest.mark.parametrize(
    ("family", "met"),
    [
        (Bare(), {Family}),
        (MeanFieldNormal.standard(2), {Family, Factorized, FromNoise, Natural}),
        (FullRankNormal.standard(2), {Family, FromNoise, Natural}),
        (LowRankNormal.standard(2), {Family, FromNoise, Natural}),
        (Mixture([MeanFieldNormal.standard(2)] * 2), {Family, Stratified}),
        (jax.random, set()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_family_meets_its_protocols(family: object, met: set[type]):
    assert {protocol for protocol in PROTOCOLS if isinstance(family, protocol)} == met
