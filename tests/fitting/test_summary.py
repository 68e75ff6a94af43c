"""The table of a fitted distribution."""

import jax
import numpy as np
import scipy.stats

import dlrd
from dlrd.fitting.summary import QUANTILES, Summary, summarize, summarize_draws

RNG = np.random.default_rng(0)


def test_normal_has_its_own_quantiles() -> None:
    family = dlrd.FullRankNormal([1.0, -200.0], [[2.0, 0.0], [30.0, 40.0]])
    summary = summarize(family, ["slope", "offset"], "Done.")
    assert summary.names == ["slope", "offset"]
    np.testing.assert_array_equal(summary.mean, [1.0, -200.0])
    np.testing.assert_allclose(summary.std, [2.0, 50.0], rtol=1e-6)
    expected = scipy.stats.norm([1, -200], [2, 50]).ppf(np.array(QUANTILES)[:, None])
    np.testing.assert_allclose(summary.quantiles, expected, rtol=1e-6)


def test_one_array_of_draws() -> None:
    """Of any shape: a row for each entry."""
    draws = RNG.normal(size=(100, 2, 2)).astype("float32")
    summary = summarize_draws(draws, ["a", "b", "c", "d"], "Done.")
    assert summary.names == ["a", "b", "c", "d"]
    flat = draws.reshape(100, 4).astype(float)
    np.testing.assert_array_equal(summary.mean, flat.mean(axis=0))
    np.testing.assert_array_equal(summary.std, flat.std(axis=0))
    np.testing.assert_array_equal(summary.quantiles, np.quantile(flat, QUANTILES, axis=0))


def test_named_variables_name_their_entries() -> None:
    draws = {
        "sigma": RNG.normal(size=100),
        "beta": RNG.normal(size=(100, 2)),
        "l": RNG.normal(size=(100, 1, 2)),
    }
    summary = summarize_draws(draws, ["z[0]", "z[1]", "z[2]", "z[3]"], "Done.")
    assert summary.names == ["sigma", "beta[0]", "beta[1]", "l[0, 0]", "l[0, 1]"]
    flat = np.column_stack([draws["sigma"], draws["beta"], draws["l"][:, 0]])
    np.testing.assert_array_equal(summary.mean, flat.mean(axis=0))
    np.testing.assert_array_equal(summary.std, flat.std(axis=0))


def test_draws_of_a_normal_agree_with_the_normal() -> None:
    family = dlrd.MeanFieldNormal([1e-4, 3.0], np.log([1e-5, 2.0]))
    names = ["z[0]", "z[1]"]
    draws = summarize_draws(np.asarray(family.sample(jax.random.key(0), (10_000,))), names, "")
    exact = summarize(family, names, "")
    # Five standard errors of the mean, the standard deviation and an outer quantile of 10,000 draws.
    error = 5 * np.asarray(family.std) / np.sqrt(10_000)
    assert np.all(np.abs(draws.mean - exact.mean) < error)
    assert np.all(np.abs(draws.std - exact.std) < error)
    assert np.all(np.abs(draws.quantiles - exact.quantiles) < 2.2 * error)


def table(mean: list[float], std: list[float]) -> Summary:
    quantiles = np.array(mean) + np.outer([-1, 0, 1], std)
    names = [f"z[{i}]" for i in range(len(mean))]
    return Summary(names, np.array(mean), np.array(std), quantiles, "All done.")


def test_it_prints_as_a_table() -> None:
    assert str(table([1.0, -20.0], [0.5, 30.0])).splitlines() == [
        "         mean      sd       5%      50%     95%",
        "z[0]    1.000   0.500    0.500    1.000   1.500",
        "z[1]  -20.000  30.000  -50.000  -20.000  10.000",
        "All done.",
    ]


def test_digits_follow_the_smallest_standard_deviation() -> None:
    assert table([1.0], [0.001234]).shown(0.001234) == "0.00123"
    assert table([1.0], [1e-5]).shown(1e-4) == "1.000e-04"  # too many decimals
    assert table([1.0], [1.0]).shown(12345.6) == "1.235e+04"  # too large
    assert table([1.0], [0.0]).shown(0.5) == "0.500"  # a constant has no digits of its own
