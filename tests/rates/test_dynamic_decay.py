from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from jaxtyping import PyTree

import dlrd
from dlrd.rates import DynamicDecayState

LENGTH = 100


def run(iterates: PyTree, max_tracked: int | None = None, **settings: float) -> DynamicDecayState:
    """The states after each of the iterates, which are stacked along the first axis."""
    num, size = len(jax.tree.leaves(iterates)[0]), sum(leaf.size for leaf in jax.tree.leaves(iterates))

    def padded(leaf: jax.Array) -> np.ndarray:
        return np.concatenate([leaf, np.repeat(leaf[-1:], LENGTH - num, axis=0)])

    # Of one length, so that few programs serve all tests; later iterates change no earlier state.
    if num < LENGTH and size < 1000:
        iterates = jax.tree.map(padded, iterates)
    settings = {"learning_rate": 1.0, "factor": 0.5, "min_snr": 1.0, "min_travel": 0.0, **settings}
    states = run_whole(iterates, settings, max_tracked)
    return jax.tree.map(lambda leaf: leaf[:num], jax.device_get(states))


@partial(jax.jit, static_argnums=2)
def run_whole(iterates: PyTree, settings: dict[str, jax.Array], max_tracked: int | None) -> DynamicDecayState:
    rule = dlrd.dynamic_decay(max_tracked=max_tracked, **settings)

    def step(state: DynamicDecayState, iterate: PyTree):
        _, state = rule.update(iterate, state, iterate)
        return state, state

    first = jax.tree.map(lambda leaf: leaf[0], iterates)
    return jax.lax.scan(step, rule.init(first), iterates)[1]


def decays(states: DynamicDecayState) -> list[int]:
    """The iterations at which the rate fell."""
    return np.flatnonzero(np.diff(np.asarray(states.num_decays), prepend=0)).tolist()


def noisy_approach(*shape: int, seed: int = 0) -> jax.Array:
    """Iterates that come near a value and then oscillate around it: (iteration, …)."""
    noise = np.random.default_rng(seed).normal(size=shape)
    progress = 5 * np.exp(-np.arange(shape[0]) / 3)
    return jnp.asarray(noise + progress.reshape(-1, *[1] * (len(shape) - 1)))


def assert_same_snr(left: np.ndarray, right: np.ndarray) -> None:
    # In double precision and windows of at most 100 iterates: 100 eps of each sum, times at most 1e4 for the
    # distance that the iterates come from, beside their noise.
    np.testing.assert_allclose(left, right, rtol=1e-9)


def test_hand_built_window(precision: jnp.dtype):
    # ρ of 1, 3, 2 is 1/3, of 0, 1, 4 it is 12, and of 0, 1, 4, 0 it is 9/206.
    states = run(jnp.asarray([1, 3, 2, 0, 1, 4, 0], dtype=precision))

    assert decays(states) == [2, 6]
    assert np.isnan(states.snr[:2]).all()
    # At most a dozen roundings, of sums that are at most 13 times as large as their difference.
    expected = [1 / 3, 1 / 3, 1 / 3, 12, 9 / 206]
    np.testing.assert_allclose(states.snr[2:], expected, rtol=12 * 13 * jnp.finfo(precision).eps)
    np.testing.assert_array_equal(states.learning_rate, [1, 1, 0.5, 0.5, 0.5, 0.5, 0.25])


def test_the_step_of_the_deciding_iteration_uses_the_new_rate():
    rule = dlrd.dynamic_decay(1.0, factor=0.5)
    state = rule.init(jnp.asarray(1.0))
    updates = []
    for iterate in [1.0, 3.0, 2.0, 5.0]:
        update, state = rule.update(jnp.asarray(8.0), state, jnp.asarray(iterate))
        updates.append(float(update))

    assert updates == [-8, -8, -4, -4]


def test_the_next_iterate_opens_the_new_window():
    states = run(jnp.asarray([1.0, 3.0, 2.0, 7.0, 9.0]))

    assert decays(states) == [2]
    assert states.position.tolist() == [1, 2, 0, 1, 2]
    assert np.ravel(states.windows[0].anchor[3:]).tolist() == [7, 7]
    assert np.ravel(states.windows[0].total[3:]).tolist() == [0, 2]


def test_a_window_is_no_shorter_than_the_one_before():
    """A line for ten iterations, then noise: the next windows wait for as long as the first took."""
    noise = np.random.default_rng(0).normal(size=90)
    states = run(jnp.asarray([*range(10), *noise]))

    (first, *others) = decays(states)
    assert first >= 10
    assert states.min_position[:first].tolist() == [2] * first
    assert states.min_position[first] == first
    assert others[0] - first - 1 == first  # of noise alone, so at the first look
    assert np.all(np.diff([-1, first, *others]) >= first + 1)


def test_min_snr_is_the_bar():
    iterates = noisy_approach(60, 3)

    def first_snr(min_snr: float) -> tuple[float, np.ndarray]:
        states = run(iterates, min_snr=min_snr)
        return states.snr[decays(states)[0]], states.snr[2 : decays(states)[0]]

    for min_snr in [0.25, 1.0, 4.0]:
        at_decay, before = first_snr(min_snr)
        assert at_decay < min_snr <= before.min()


def test_factor_is_applied_at_each_decay():
    states = run(noisy_approach(100), learning_rate=0.5, factor=0.25)

    assert states.num_decays[-1] >= 3
    np.testing.assert_array_equal(states.learning_rate, 0.5 * 0.25**states.num_decays)


class TestMinTravel:
    def test_no_window_ends_before_it_has_travelled(self):
        """Noise alone, which would end each window at its first look."""
        noise = jnp.asarray(np.random.default_rng(0).normal(size=(400, 5)))
        states = run(noise, learning_rate=0.5, factor=0.5, min_travel=4.0)
        ends = decays(states)
        lengths = np.diff([-1, *ends]) - 1  # k at the decay
        rates = 0.5 * 0.5 ** np.arange(len(ends))
        assert len(ends) >= 4
        np.testing.assert_array_equal(lengths * rates, 4.0)

    def test_short_windows_have_no_snr(self):
        states = run(noisy_approach(30, 3), learning_rate=0.5, min_travel=4.0)
        assert np.isnan(states.snr[:8]).all()
        assert np.isfinite(states.snr[8])

    def test_none_by_default(self):
        """As a floor that every window is above."""
        iterates = noisy_approach(100, 3)
        states, others = run(iterates), run(iterates, min_travel=1e-9)
        for leaf, other in zip(jax.tree.leaves(states), jax.tree.leaves(others), strict=True):
            np.testing.assert_array_equal(leaf, other)
        assert decays(states) != decays(run(iterates, min_travel=20.0))

    @pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
    def test_others_are_refused(self, value: float):
        with pytest.raises(ValueError, match=f"min_travel must be at least 0, got {value}"):
            dlrd.dynamic_decay(0.1, min_travel=value)


@pytest.mark.usefixtures("x64")
class TestParametersAtRest:
    def test_one_is_left_out_of_the_mean(self):
        iterates = noisy_approach(100, 2)
        with_frozen = {"frozen": jnp.full((100, 3), 0.1), "moving": iterates}

        states, expected = run(with_frozen), run(iterates)

        assert decays(states) == decays(expected) != []
        assert_same_snr(states.snr, expected.snr)

    def test_one_counts_once_it_has_moved(self):
        # Beside the oscillating parameter, the other one rests for four iterates and then runs off in a line.
        oscillating = jnp.asarray([0.0, 1, 0, 1, 0, 1, 0, 1])
        waking = jnp.asarray([0.0, 0, 0, 0, 0, 10, 20, 30])
        states = run({"a": oscillating, "b": waking}, min_snr=1e-3)
        alone = run(oscillating, min_snr=1e-3)

        start = decays(states)[0] + 1  # 0, 1, 0 has no slope at all: the first window ends with it
        assert start == 3
        # 10, 20, 30 after two zeros: S_yy = 680, S_ky = 80, SSR = 640.
        oscillating_snr = float(alone.snr[7])
        np.testing.assert_allclose(states.snr[7], (640 / 40 + oscillating_snr) / 2, rtol=1e-12)

    def test_all_of_them_never_decay(self):
        states = run({"a": jnp.full(50, 0.1), "b": jnp.full((50, 2), 1e6)})

        assert decays(states) == []
        assert np.isnan(states.snr).all()
        assert states.learning_rate[-1] == 1

    def test_one_at_rest_in_a_later_window_is_left_out_there(self):
        first_window = jnp.asarray([1.0, 3.0, 2.0])
        moving, resting = noisy_approach(60), jnp.full(60, 0.7)
        states = run(
            {
                "a": jnp.concatenate([first_window, moving]),
                "b": jnp.concatenate([first_window, resting]),
            }
        )

        expected = run(moving)
        assert decays(states) == [2, *(3 + np.asarray(decays(expected)))]
        assert_same_snr(states.snr[5:], expected.snr[2:])


@pytest.mark.parametrize("slope", [1.0, -3.0, 0.125])
def test_a_perfect_line_has_infinite_snr(precision: jnp.dtype, slope: float):
    """All numbers are exact here, so that the samples lie on a line to the last digit."""
    states = run(1000 + slope * jnp.arange(400, dtype=precision))

    assert decays(states) == []
    assert np.isposinf(states.snr[2:]).all()


def test_a_perfect_line_beside_noise_stops_decays():
    states = run({"line": jnp.arange(50.0), "noise": noisy_approach(50)})

    assert decays(states) == []
    assert not np.isnan(states.snr[2:]).any()


def test_no_slope_at_all_is_an_snr_of_zero():
    states = run(jnp.asarray([0.0, 1, 0]))

    assert states.snr[2] == 0
    assert decays(states) == [2]


@pytest.mark.usefixtures("x64")
class TestIteratesThatAreNotFinite:
    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    def test_are_not_recorded(self, value: float):
        clean = noisy_approach(100, 3)
        expected = run(clean)
        first = decays(expected)[0]
        # At the very first, before and at a decision, as the first of a new window, twice in a row, and last.
        places = np.asarray([0, 5, first, first + 1, first + 1, 60, 100])
        dirty = jnp.asarray(np.insert(clean, places, np.asarray(clean)[places - 1], axis=0))
        is_bad = np.insert(np.zeros(100, bool), places, True)
        dirty = dirty.at[np.flatnonzero(is_bad), 1].set(value)

        states = run(dirty)

        kept = jax.tree.map(lambda leaf: leaf[~is_bad], states)
        assert decays(kept) == decays(expected)
        assert decays(states) == np.flatnonzero(~is_bad)[decays(expected)].tolist()
        assert_same_snr(kept.snr, expected.snr)

    def test_change_nothing_in_the_state(self):
        rule = dlrd.dynamic_decay(1.0, factor=0.5)
        states = run(noisy_approach(20, 3))
        before = jax.tree.map(lambda leaf: jnp.asarray(leaf[-1]), states)
        update, after = rule.update(jnp.ones(3), before, jnp.asarray([0, np.nan, 1]))

        jax.tree.map(np.testing.assert_array_equal, after, before)
        np.testing.assert_array_equal(update, -np.ones(3) * before.learning_rate)

    def test_one_bad_leaf_keeps_the_others_out_too(self):
        clean = {"a": noisy_approach(60, 2), "b": noisy_approach(60, seed=1)}
        dirty = {
            "a": np.insert(clean["a"], 10, 100.0, axis=0),
            "b": np.insert(clean["b"], 10, np.nan),
        }

        states, expected = run(dirty), run(clean)

        assert np.delete(states.num_decays, 10).tolist() == expected.num_decays.tolist()
        assert decays(expected) != []
        assert_same_snr(np.delete(states.snr, 10), expected.snr)


@pytest.mark.parametrize("exponent", [-50, 50])
def test_the_size_of_a_parameter_does_not_matter(exponent: int):
    """A power of two changes no digit, as long as squares have room: float32 reaches from 2⁻¹²⁶ to 2¹²⁷."""
    iterates = noisy_approach(60, 2).astype(jnp.float32)

    assert decays(run(iterates * 2.0**exponent)) == decays(run(iterates)) != []


class TestTypesOfLeaves:
    @pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
    def test_half_precision_is_summed_in_single(self, dtype: Any):
        halves = noisy_approach(100, 3).astype(dtype)

        states, expected = run(halves), run(halves.astype(jnp.float32))

        assert {leaf.dtype for leaf in jax.tree.leaves(states.windows)} == {np.dtype("float32")}
        assert decays(states) == decays(expected) != []

    @pytest.mark.usefixtures("x64")
    def test_single_beside_double_precision_takes_nothing_from_it(self):
        """An offset that leaves no digit of the noise in single precision."""
        double = noisy_approach(60, 2) + 1e9
        single = noisy_approach(60, 3, seed=1).astype(jnp.float32)

        states, expected = run({"a": single, "b": double}), run({"a": single.astype(float), "b": double})

        assert decays(states) == decays(expected) != []

    @pytest.mark.usefixtures("x64")
    def test_complex_numbers_count_as_two(self):
        parts = noisy_approach(100, 2, 3)

        states, expected = run(parts[:, 0] + 1j * parts[:, 1]), run(parts)

        assert decays(states) == decays(expected) != []
        assert_same_snr(states.snr, expected.snr)

    def test_what_holds_no_real_number_is_ignored(self):
        values = noisy_approach(60, 2)

        def decorate(value: jax.Array, index: jax.Array | int) -> PyTree:
            return {
                "boolean": jnp.asarray(index % 2 == 0),
                "float0": np.zeros(4, jax.dtypes.float0),
                "integer": jnp.arange(3) + index,
                "masked": optax.MaskedNode(),
                "none": None,
                "x": value,
            }

        rule = dlrd.dynamic_decay(1.0, factor=0.5)

        def step(state: DynamicDecayState, value_and_index: tuple[jax.Array, jax.Array]):
            tree = decorate(*value_and_index)
            _, state = rule.update(tree, state, tree)
            return state, state

        start = rule.init(decorate(values[0], 0))
        states = jax.lax.scan(step, start, (values, jnp.arange(60)))[1]

        jax.tree.map(np.testing.assert_array_equal, states, run(values))
        assert decays(states) != []

    @pytest.mark.parametrize("tree", [{}, (), {"a": None}, {"a": jnp.zeros((0, 3))}])
    def test_an_empty_tree_never_decays(self, tree: PyTree):
        rule = dlrd.dynamic_decay(1.0)
        state = rule.init(tree)
        update_fn = jax.jit(rule.update)
        for _ in range(5):
            _, state = update_fn(tree, state, tree)

        assert state.num_decays == 0
        assert state.learning_rate == 1
        assert np.isnan(state.snr)

    def test_scalars(self):
        values = noisy_approach(60)

        assert decays(run(values)) == decays(run(values[:, None])) != []

    def test_numpy_arrays(self):
        rule = dlrd.dynamic_decay(1.0)
        state = rule.init(np.asarray([1.0, 5.0]))
        for values in [[1, 5], [3, 2], [2, 6]]:
            update, state = rule.update(np.ones(2), state, np.asarray(values, float))

        assert isinstance(update, jax.Array)
        assert state.num_decays == 1


def test_without_parameters_the_message_says_so():
    rule = dlrd.dynamic_decay(0.1)

    with pytest.raises(ValueError, match="not passing `params` when calling `update`"):
        rule.update(jnp.ones(2), rule.init(jnp.ones(2)))


def test_moments_of_the_optimizer_are_left_alone():
    adam = optax.scale_by_adam()
    optimizer = optax.chain(adam, dlrd.dynamic_decay(0.1))
    gradients = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    iterates = noisy_approach(50, 3).astype(jnp.float32)
    state, adam_state = optimizer.init(iterates[0]), adam.init(iterates[0])
    update_fn, adam_fn = jax.jit(optimizer.update), jax.jit(adam.update)
    for gradient, iterate in zip(gradients, iterates, strict=True):
        _, state = update_fn(gradient, state, iterate)
        _, adam_state = adam_fn(gradient, adam_state, iterate)

    assert optax.tree_utils.tree_get(state, "num_decays") >= 1
    jax.tree.map(np.testing.assert_array_equal, state[0], adam_state)


def test_snr_is_the_latest_one_looked_at():
    """Between looks, the last is kept: it is what a progress bar shows."""
    states = run(jnp.asarray([1.0, 3.0, 2.0, 0.0, 1.0, 4.0]))

    assert states.snr[2] == states.snr[3] == states.snr[4]
    assert states.snr[5] != states.snr[4]


@pytest.mark.parametrize("shape", [(7,), (41_000,), (200, 205)])
@pytest.mark.usefixtures("x64")
def test_the_mean_is_over_all_parameters_of_all_leaves(shape: tuple[int, ...]):
    """Of leaves of any size and shape: large ones are added up in blocks."""
    iterates = {"a": noisy_approach(5, *shape), "b": noisy_approach(5, 3, seed=1), "c": noisy_approach(5)}
    is_frozen = np.random.default_rng(2).random(shape) < 0.3
    iterates["a"] = jnp.where(is_frozen, 0.1, iterates["a"])
    values = np.concatenate([np.reshape(leaf, (5, -1)) for leaf in jax.tree.leaves(iterates)], axis=1)
    centered = (values - values.mean(axis=0))[:, np.ptp(values, axis=0) > 0]
    r = np.arange(-2, 3) @ centered / np.sqrt(10 * np.sum(centered**2, axis=0))  # Pearson's, as in the paper

    states = run(iterates, min_snr=1e-9)

    assert_same_snr(states.snr[-1], np.mean(1 / (1 / r**2 - 1)))


@pytest.mark.slow
@pytest.mark.parametrize("axis_type", [AxisType.Auto, AxisType.Explicit])
def test_large_windows_are_sharded_as_the_parameters_are(axis_type: AxisType):
    """No device holds the sums of another's parameters."""
    mesh = jax.make_mesh((2,), ("device",), axis_types=(axis_type,))
    sharding = NamedSharding(mesh, PartitionSpec("device"))
    iterates = noisy_approach(5, 400, 205).astype(jnp.float32)
    rule = dlrd.dynamic_decay(1.0, min_snr=1e-9)
    state = rule.init(jax.device_put(iterates[0], sharding))
    update_fn = jax.jit(rule.update)
    for iterate in iterates:
        iterate = jax.device_put(iterate, sharding)
        _, state = update_fn(iterate, state, iterate)

    for leaf in jax.tree.leaves(state.windows):
        assert leaf.sharding.is_equivalent_to(sharding, leaf.ndim)
    # A mean of positive numbers, each rounded alike: only the order of 82 000 additions differs.
    expected = run(iterates, min_snr=1e-9).snr[-1]
    np.testing.assert_allclose(state.snr, expected, rtol=82_000 * jnp.finfo(jnp.float32).eps)


class TestMaxTracked:
    iterates: PyTree

    @pytest.fixture(autouse=True)
    def _iterates(self) -> None:
        self.iterates = {"w": noisy_approach(100, 7, 9), "b": noisy_approach(100, 5, seed=1)}  # 68 in all

    @pytest.mark.parametrize("max_tracked", [68, 10**9])
    def test_enough_for_all_is_the_exact_rule(self, max_tracked: int):
        states = run(self.iterates, max_tracked=max_tracked)

        jax.tree.map(np.testing.assert_array_equal, states, run(self.iterates))

    @pytest.mark.parametrize(("max_tracked", "stride"), [(67, 2), (10, 7), (1, 68)])
    def test_a_subset_is_the_rule_on_that_subset(self, max_tracked: int, stride: int):
        subset = jax.tree.map(lambda leaf: leaf.reshape(100, -1)[:, ::stride], self.iterates)

        states = run(self.iterates, max_tracked=max_tracked)

        expected = run(subset)
        assert decays(states) == decays(expected) != []
        jax.tree.map(np.testing.assert_array_equal, states.windows, expected.windows)

    def test_state_is_small(self):
        params = {"w": jnp.zeros((1000, 1000)), "b": jnp.zeros(1000)}
        num_tracked = 100

        state = dlrd.dynamic_decay(1.0, max_tracked=num_tracked).init(params)

        num_sums = len(jax.tree.leaves(state.windows[0]))
        num_scalars = len(state) - 1
        # Each leaf rounds the number of its entries up.
        most = num_sums * (num_tracked + len(params)) + num_scalars
        assert sum(leaf.size for leaf in jax.tree.leaves(state)) <= most

    def test_complex_entries_are_strided_as_a_whole(self):
        parts = noisy_approach(100, 10, 2)
        states = run(parts[..., 0] + 1j * parts[..., 1], max_tracked=5)

        assert decays(states) == decays(run(parts[:, ::2])) != []
