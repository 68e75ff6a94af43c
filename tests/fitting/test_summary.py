"""The table of a fitted distribution."""

from typing import Any, ClassVar

import jax
import numpy as np
import pytest
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
    summary = summarize_draws({"z": draws}, "Done.")
    assert summary.names == ["z[0, 0]", "z[0, 1]", "z[1, 0]", "z[1, 1]"]
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
    summary = summarize_draws(draws, "Done.")
    assert summary.names == ["sigma", "beta[0]", "beta[1]", "l[0, 0]", "l[0, 1]"]
    flat = np.column_stack([draws["sigma"], draws["beta"], draws["l"][:, 0]])
    np.testing.assert_array_equal(summary.mean, flat.mean(axis=0))
    np.testing.assert_array_equal(summary.std, flat.std(axis=0))


def test_draws_of_a_normal_agree_with_the_normal() -> None:
    family = dlrd.MeanFieldNormal([1e-4, 3.0], np.log([1e-5, 2.0]))
    draws = summarize_draws({"z": np.asarray(family.sample(jax.random.key(0), (10_000,)))}, "")
    exact = summarize(family, ["z[0]", "z[1]"], "")
    # Five standard errors of the mean, the standard deviation and an outer quantile of 10,000 draws.
    error = 5 * np.asarray(family.std) / np.sqrt(10_000)
    assert np.all(np.abs(draws.mean - exact.mean) < error)
    assert np.all(np.abs(draws.std - exact.std) < error)
    assert np.all(np.abs(draws.quantiles - exact.quantiles) < 2.2 * error)


def table(mean: list[float], std: list[float]) -> Summary:
    quantiles = np.array(mean) + np.outer([-1, 0, 1], std)
    names = [f"z[{i}]" for i in range(len(mean))]
    return Summary(names, np.array(mean), np.array(std), quantiles, "All done.", {"z": (len(mean),)})


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


def test_rows_of_variables() -> None:
    draws = {"a": RNG.normal(size=10), "b": RNG.normal(size=(10, 2, 2)), "c": RNG.normal(size=(10, 0))}
    summary = summarize_draws(draws, "Done.")
    assert summary.rows == {"a": range(1), "b": range(1, 5), "c": range(5, 5)}
    chosen = summary.of(["b[1, 0]", "b"])
    assert chosen.names == ["b[1, 0]", "b[0, 0]", "b[0, 1]", "b[1, 0]", "b[1, 1]"]
    np.testing.assert_array_equal(chosen.quantiles, summary.quantiles[:, [3, 1, 2, 3, 4]])
    assert chosen.shapes == {"b[1, 0]": (), "b": (2, 2)}
    assert summary.of("c").names == []


def test_labels_are_those_of_the_model() -> None:
    class Labels:
        dims: ClassVar = {"x": ("side",)}
        coords: ClassVar = {"side": np.array(["left", "right"])}

    model: Any = Labels()
    assert summarize_draws({"x": np.ones((3, 2))}, "", model).names == ["x[left]", "x[right]"]


def test_unknown_names_are_told_the_known_ones() -> None:
    many = summarize(dlrd.MeanFieldNormal.standard(20), [f"name {i}" for i in range(20)], "")
    with pytest.raises(ValueError, match=r"among name 0, name 1, .*, name 11 and 8 more, got str 'nmae 3'$"):
        many.of("nmae 3")
    with pytest.raises(ValueError, match="got none"):
        many.of([])


def test_a_prompt_shows_the_table() -> None:
    assert repr(table([1.0], [0.5])) == str(table([1.0], [0.5]))


def test_the_first_rows_are_told_apart_by_their_place():
    """Though labels may be the same."""
    summary = Summary(["a[x]", "a[x]"], np.array([1.0, 2.0]), np.ones(2), np.zeros((3, 2)), "", {"a": (2,)})
    np.testing.assert_array_equal(summary.head(5).mean, [1, 2])
    assert summary.head(1).names == ["a[x]"]
