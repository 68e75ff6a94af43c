"""What a family gives if it can, and what stands for it if it cannot."""

import jax
import jax.numpy as jnp
import numpy as np

import dlrd
from dlrd.families import Settling, WorkingForm, log_prob_of, member_of, settled, started

FULL_RANK = dlrd.FullRankNormal([1.0, -2.0], [[0.5, 0.0], [0.3, 2.0]])
MIXTURE = dlrd.Mixture([FULL_RANK, FULL_RANK])


def test_density_of_draws_by_their_noise_or_by_themselves() -> None:
    noise = jax.random.normal(jax.random.key(0), (5, 2))
    draws = FULL_RANK.from_noise(noise)
    expected = FULL_RANK.log_prob(draws)
    np.testing.assert_allclose(log_prob_of(FULL_RANK, noise, draws), expected, rtol=1e-5)
    # A mixture does not know which noise gives a draw: it is not asked.
    np.testing.assert_allclose(log_prob_of(MIXTURE, None, draws), expected, rtol=1e-5)


def test_a_form_leads_back_to_its_family() -> None:
    normal = dlrd.MeanFieldNormal([1.0, -2.0], [0.5, 0.3])
    form = started(normal)
    assert isinstance(form, WorkingForm)
    np.testing.assert_array_equal(member_of(form).loc, normal.loc)
    assert started(MIXTURE) is member_of(MIXTURE) is settled(MIXTURE) is MIXTURE


def test_what_has_left_the_family_is_brought_back() -> None:
    class Away:
        def settled(self) -> str:
            return "back"

    assert isinstance(Away(), Settling)
    assert settled(Away()) == "back"
    assert jnp.isfinite(settled(FULL_RANK).loc).all()
