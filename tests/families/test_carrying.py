"""A form that carries more along draws, and has the density and the moments, of its normal."""

import jax
import numpy as np
import pytest

from dlrd import FullRankNormal, LowRankNormal, MeanFieldNormal
from dlrd.families.carrying import Carrying

MEMBERS = [MeanFieldNormal([1.0, 2.0], [0.5, -0.5]), FullRankNormal.standard(2), LowRankNormal.standard(2, 1)]


@pytest.mark.parametrize("member", MEMBERS, ids=lambda member: type(member).__name__)
def test_all_is_that_of_the_member(member: MeanFieldNormal | FullRankNormal | LowRankNormal):
    form, key = Carrying(member), jax.random.key(0)
    noise = member.sample_noise(key, 3)
    draws = member.from_noise(noise)
    assert form.noise_size == member.noise_size
    for left, right in (
        (form.mean, member.mean),
        (form.std, member.std),
        (form.sample_noise(key, 3), noise),
        (form.from_noise(noise), draws),
        (form.sample(key, (3,)), member.sample(key, (3,))),
        (form.log_prob(draws), member.log_prob(draws)),
        (form.log_prob_of_noise(noise), member.log_prob_of_noise(noise)),
    ):
        np.testing.assert_array_equal(left, right)
