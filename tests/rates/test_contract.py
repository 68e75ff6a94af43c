"""What every rule owes to those who put it at the end of an optax chain."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from jaxtyping import ArrayLike, PyTree

import dlrd

RATE = 2.0**-7  # a power of two: its products with factors of 1/2 are exact in any precision


class Rule(NamedTuple):
    """A rule with settings with which it decays within `num_steps` steps of `random_path`."""

    name: str
    make_fn: Callable[..., optax.GradientTransformation]
    settings: dict[str, Any]
    static: tuple[str, ...] = ()  # arguments that must be Python numbers
    num_steps: int = 30

    def __call__(self, learning_rate: ArrayLike = RATE) -> optax.GradientTransformation:
        return self.make_fn(learning_rate, **self.settings)


RULES = {
    rule.name: rule
    for rule in [
        Rule("dynamic_decay", dlrd.dynamic_decay, {"factor": 0.5}),
        Rule("max_tracked", dlrd.dynamic_decay, {"factor": 0.5, "max_tracked": 4}, ("max_tracked",)),
        Rule("power_decay", dlrd.power_decay, {"exponent": 0.5}),
        Rule("stepwise_decay", dlrd.stepwise_decay, {"factor": 0.5, "interval": 7}, ("interval",)),
        Rule(
            "sasa",
            dlrd.sasa,
            {"factor": 0.5, "interval": 10, "tolerance": 1e6, "max_samples": 20},
            ("interval", "max_samples", "significance", "tolerance"),
        ),
        Rule(
            "sasa_plus",
            dlrd.sasa_plus,
            {"factor": 0.5, "max_samples": 1100},
            ("interval", "max_samples", "significance"),
            num_steps=8200,  # the first test comes after 8100
        ),
    ]
}


@pytest.fixture(
    params=[
        # Each of the others shares its code with one of these.
        pytest.param(name, marks=[pytest.mark.slow] * (name in ("max_tracked", "power_decay", "sasa_plus")))
        for name in RULES
    ]
)
def rule(request: pytest.FixtureRequest) -> Rule:
    return RULES[request.param]


def random_path(num_steps: int, seed: int = 0, dtype: Any = np.float32) -> tuple[PyTree, PyTree]:
    """Iterates that oscillate, and directions that have nothing to do with them: (step, …)."""
    rng = np.random.default_rng(seed)

    def draw() -> PyTree:
        return {
            "b": rng.normal(size=(num_steps, 2)).astype(dtype),
            "w": rng.normal(size=(num_steps, 4, 3)).astype(dtype),
        }

    return draw(), draw()


def at(path: PyTree, step: int) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[step], path)


def scan(transformation: optax.GradientTransformation, path: tuple[PyTree, PyTree]) -> jax.Array:
    """The rate of each step."""

    def step(state: optax.OptState, iterate_and_direction: tuple[PyTree, PyTree]):
        iterate, direction = iterate_and_direction
        _, state = transformation.update(direction, state, iterate)
        return state, optax.tree_utils.tree_get(state, "learning_rate")

    return jax.lax.scan(step, transformation.init(at(path[0], 0)), path)[1]


@cache
def scan_fn(name: str) -> Callable[[tuple[PyTree, PyTree]], jax.Array]:
    return jax.jit(partial(scan, RULES[name]()))


@cache
def rates_of(name: str, leaves: tuple[str, ...] = ("b", "w")) -> np.ndarray:
    """The rates of a rule that is run by itself along `random_path`, on these leaves of it."""
    iterates, directions = random_path(RULES[name].num_steps)
    path = ({key: iterates[key] for key in leaves}, {key: directions[key] for key in leaves})
    return np.asarray(scan_fn(name)(path))


def assert_same_rates(actual: ArrayLike, expected: ArrayLike) -> None:
    # A decay more or less is a factor of 2, and a step of the power more or less at least 1e-4; how a program
    # is compiled changes the last digits of a power at the most.
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


def counted(update_fn: Callable[..., Any]) -> tuple[Callable[..., Any], list[Any]]:
    """The same, compiled, and a list with an entry for each time that it was traced.

    jax's own count forgets a function when a process has compiled many others.
    """
    traced = []

    def update(*arguments: Any) -> Any:
        traced.append(arguments)
        return update_fn(*arguments)

    return jax.jit(update), traced


def test_a_step_is_minus_the_rate_times_the_direction(rule: Rule, precision: jnp.dtype):
    transformation = rule()
    iterates, directions = random_path(10, dtype=precision)
    state = transformation.init(at(iterates, 0))
    update_fn, traced = counted(transformation.update)
    for step in range(10):
        updates, state = update_fn(at(directions, step), state, at(iterates, step))
        rate = np.asarray(state.learning_rate)
        jax.tree.map(
            lambda update, direction, rate=rate: np.testing.assert_array_equal(update, -rate * direction),
            updates,
            at(directions, step),
        )
        assert rate.dtype == precision

    assert len(traced) == 1  # one compilation serves all steps, the first too


def test_a_loop_is_a_scan(rule: Rule):
    """Compiled step by step, as most people run it, and as a whole."""
    transformation = rule()
    iterates, directions = random_path(rule.num_steps)
    state = transformation.init(at(iterates, 0))
    update_fn = jax.jit(transformation.update)
    rates = []
    for step in range(min(rule.num_steps, 200)):
        _, state = update_fn(at(directions, step), state, at(iterates, step))
        rates.append(state.learning_rate)

    expected = rates_of(rule.name)
    assert_same_rates(np.asarray(rates), expected[: len(rates)])
    assert expected[-1] <= 0.5 * expected[0]  # it has decayed, or this would show little


def test_without_jit_it_is_the_same(rule: Rule):
    transformation = rule()
    iterates, directions = random_path(rule.num_steps)
    state = transformation.init(at(iterates, 0))
    for step in range(3):
        _, state = transformation.update(at(directions, step), state, at(iterates, step))
        assert_same_rates(state.learning_rate, rates_of(rule.name)[step])


def test_vmap_over_states(rule: Rule):
    paths = [random_path(rule.num_steps, seed) for seed in range(3)]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *paths)

    rates = jax.jit(jax.vmap(partial(scan, rule())))(stacked)

    assert_same_rates(rates, np.stack([scan_fn(rule.name)(path) for path in paths]))


def test_vmap_over_learning_rates(rule: Rule):
    path = random_path(rule.num_steps)
    learning_rates = RATE * jnp.asarray([1.0, 0.5, 2.0])

    @jax.jit
    def run(learning_rate: jax.Array) -> jax.Array:
        return scan(rule(learning_rate), path)

    rates = jax.jit(jax.vmap(run))(learning_rates)

    assert_same_rates(rates, np.stack([run(learning_rate) for learning_rate in learning_rates]))


def test_injected_learning_rate_takes_effect_at_once(rule: Rule):
    injected = optax.inject_hyperparams(rule.make_fn, static_args=rule.static)(
        learning_rate=RATE, **rule.settings
    )
    iterates, directions = random_path(rule.num_steps)
    state = injected.init(at(iterates, 0))
    update_fn, traced = counted(injected.update)
    for step in range(8):
        if step == 4:
            state.hyperparams["learning_rate"] = jnp.asarray(4 * RATE, jnp.float32)
        updates, state = update_fn(at(directions, step), state, at(iterates, step))
        expected = rates_of(rule.name)[step] * (4 if step >= 4 else 1)
        assert_same_rates(state.inner_state.learning_rate, expected)
        assert_same_rates(updates["b"], -expected * directions["b"][step])

    assert len(traced) == 1


def test_multi_transform(rule: Rule):
    """Each group has a rule of its own, which sees its own parameters alone."""
    path = random_path(rule.num_steps)
    combined = optax.multi_transform({"rule": rule(), "sgd": optax.sgd(0.5)}, {"b": "sgd", "w": "rule"})

    def rates(path: tuple[PyTree, PyTree]) -> tuple[jax.Array, PyTree]:
        def step(state: optax.OptState, iterate_and_direction: tuple[PyTree, PyTree]):
            iterate, direction = iterate_and_direction
            updates, state = combined.update(direction, state, iterate)
            return state, (optax.tree_utils.tree_get(state, "learning_rate"), updates)

        return jax.lax.scan(step, combined.init(at(path[0], 0)), path)[1]

    actual, updates = jax.jit(rates)(path)

    assert_same_rates(actual, rates_of(rule.name, leaves=("w",)))
    np.testing.assert_array_equal(updates["b"], -0.5 * path[1]["b"])
    np.testing.assert_array_equal(updates["w"], -actual[:, None, None] * path[1]["w"])


def test_masked(rule: Rule):
    path = random_path(rule.num_steps)
    masked = optax.masked(rule(), {"b": False, "w": True})

    assert_same_rates(jax.jit(partial(scan, masked))(path), rates_of(rule.name, leaves=("w",)))
    updates, _ = masked.update(at(path[1], 0), masked.init(at(path[0], 0)), at(path[0], 0))
    np.testing.assert_array_equal(updates["b"], path[1]["b"][0])


def test_multi_steps(rule: Rule):
    """Two equal directions in a row have an exact mean; the rule sees every second iterate."""
    iterates, directions = random_path(rule.num_steps)
    accumulating = optax.MultiSteps(rule(), every_k_schedule=2)
    state = accumulating.init(at(iterates, 0))
    update_fn = jax.jit(accumulating.update)
    for step in range(12):
        direction = at(directions, step)
        updates, state = update_fn(direction, state, jax.tree.map(np.zeros_like, direction))
        assert all((leaf == 0).all() for leaf in jax.tree.leaves(updates))
        updates, state = update_fn(direction, state, at(iterates, step))
        assert_same_rates(state.inner_opt_state.learning_rate, rates_of(rule.name)[step])
        assert_same_rates(updates["w"], -rates_of(rule.name)[step] * direction["w"])


@pytest.mark.parametrize("axis_type", [AxisType.Auto, AxisType.Explicit])
def test_sharded_arrays(rule: Rule, axis_type: AxisType):
    """`Explicit` is what `jax.make_mesh` gives by default."""
    mesh = jax.make_mesh((2,), ("device",), axis_types=(axis_type,))
    sharding = NamedSharding(mesh, PartitionSpec("device"))
    iterates, directions = random_path(rule.num_steps)
    transformation = rule()
    state = transformation.init(jax.device_put(at(iterates, 0), sharding))
    update_fn = jax.jit(transformation.update)
    for step in range(12):
        iterate, direction = (jax.device_put(at(each, step), sharding) for each in (iterates, directions))
        updates, state = update_fn(direction, state, iterate)
        assert_same_rates(state.learning_rate, rates_of(rule.name)[step])

    for update in jax.tree.leaves(updates):
        assert update.sharding.is_equivalent_to(sharding, update.ndim)


@pytest.mark.usefixtures("x64")
def test_updates_keep_their_type(rule: Rule):
    dtypes = ["bfloat16", "float16", "float32", "float64", "complex64", "complex128"]
    transformation = rule()
    params = {dtype: jnp.ones(3, dtype) for dtype in dtypes}

    updates, _ = jax.jit(transformation.update)(params, transformation.init(params), params)

    for dtype, update in updates.items():
        assert update.dtype == dtype
        np.testing.assert_array_equal(update, np.full(3, -RATE, dtype))


def kinds(state: optax.OptState) -> list[tuple[Any, ...]]:
    return [(leaf.shape, leaf.dtype, leaf.weak_type) for leaf in jax.tree.leaves(state)]


@pytest.mark.parametrize("kind", ["python", "numpy", "jax", "weak jax"])
def test_types_of_the_state_never_change(rule: Rule, precision: jnp.dtype, kind: str):
    """So that a loop can carry it."""
    learning_rate = {
        "python": RATE,
        "numpy": np.float64(RATE),
        "jax": jnp.asarray(RATE, jnp.float32),
        "weak jax": jnp.asarray(RATE),
    }[kind]
    transformation = rule(learning_rate)
    iterates, directions = (at(each, 0) for each in random_path(1, dtype=precision))

    state = transformation.init(iterates)
    _, new_state = jax.eval_shape(transformation.update, directions, state, iterates)

    assert jax.tree.structure(new_state) == jax.tree.structure(state)
    assert kinds(new_state) == kinds(state)
    assert not any(is_weak for _, _, is_weak in kinds(state))


def step_fn(transformation: optax.GradientTransformation) -> Callable[..., Any]:
    """A step that keeps the old state if the direction is bad, so that it reads all of its donated input."""

    def step(direction: PyTree, state: optax.OptState, params: PyTree) -> tuple[PyTree, optax.OptState]:
        updates, new_state = transformation.update(direction, state, params)
        is_good = jnp.isfinite(optax.tree.norm(direction))
        state = jax.tree.map(lambda new, old: jnp.where(is_good, new, old), new_state, state)
        return optax.apply_updates(params, updates), state

    return jax.jit(step, donate_argnums=(1, 2))


def test_state_can_be_donated(rule: Rule):
    """From the first call on: no buffer of the state is held by something else, or twice by itself."""
    learning_rate = jnp.asarray(RATE, jnp.float32)
    transformation = rule(learning_rate)
    iterates, directions = random_path(4)
    params = jax.tree.map(jnp.asarray, at(iterates, 0))
    state = transformation.init(params)
    fn = step_fn(transformation)
    for step in range(4):
        donated = (state, params)
        params, state = fn(at(directions, step), state, params)
        assert all(leaf.is_deleted() for leaf in jax.tree.leaves(donated))

    assert learning_rate == RATE  # not lost with the state
    assert transformation.init(params).learning_rate == RATE


def test_injected_state_can_be_donated(rule: Rule):
    injected = optax.inject_hyperparams(rule.make_fn, static_args=rule.static)(
        learning_rate=RATE, **rule.settings
    )
    iterates, directions = random_path(3)
    params = jax.tree.map(jnp.asarray, at(iterates, 0))
    state = injected.init(params)
    fn = step_fn(injected)
    for step in range(3):
        params, state = fn(at(directions, step), state, params)

    assert np.isfinite(params["b"]).all()


def test_rate_is_read_from_a_chain(rule: Rule):
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.scale_by_adam(), rule())

    state = optimizer.init({"x": jnp.ones(2)})

    assert optax.tree_utils.tree_get(state, "learning_rate") == RATE


def test_leaves_that_hold_no_real_number_pass_through(rule: Rule):
    transformation = rule()
    params = {
        "float0": jnp.arange(4),
        "integer": jnp.arange(3),
        "masked": optax.MaskedNode(),
        "none": None,
        "x": jnp.ones(2),
    }
    directions = {**params, "float0": np.zeros(4, jax.dtypes.float0)}

    updates, _ = transformation.update(directions, transformation.init(params), params)

    assert updates["float0"].dtype == jax.dtypes.float0
    assert updates["integer"].tolist() == [0, 1, 2]
    assert updates["masked"] == optax.MaskedNode()
    assert updates["none"] is None
    assert updates["x"].tolist() == [-RATE, -RATE]


def test_gradients_of_integers_are_ignored(rule: Rule):
    """As `jax.grad(…, allow_int=True)` gives them."""
    transformation = rule()
    params = {"n": jnp.arange(3), "x": jnp.ones(2)}
    state = transformation.init(params)

    @jax.jit
    def step(state: optax.OptState, params: PyTree) -> jax.Array:
        gradient_fn = jax.grad(lambda params: jnp.sum(params["x"] ** 2), allow_int=True)
        return transformation.update(gradient_fn(params), state, params)[0]["x"]

    assert step(state, params).tolist() == [-2 * RATE, -2 * RATE]


@pytest.mark.parametrize("tree", [{}, {"a": None, "b": np.zeros((0, 2), np.float32)}])
def test_an_empty_tree_works(rule: Rule, tree: PyTree):
    transformation = rule()

    updates, _ = jax.jit(transformation.update)(tree, transformation.init(tree), tree)

    assert jax.tree.structure(updates) == jax.tree.structure(tree)


@pytest.mark.parametrize("number", [float, np.float64, jnp.asarray])
def test_a_single_number_works(rule: Rule, number: Callable[[float], Any]):
    """Whatever it is made of, and without a warning."""
    transformation = rule()
    state = transformation.init(number(3.0))

    update, _ = transformation.update(number(2.0), state, number(3.0))

    assert update == -2 * RATE


@pytest.mark.parametrize("learning_rate", [0, -1, 0.0, float("nan"), float("inf"), np.float32(-1)])
def test_bad_learning_rate_is_named(rule: Rule, learning_rate: float):
    with pytest.raises(ValueError, match=f"learning_rate must be a positive number, got {learning_rate}"):
        rule(learning_rate)


@pytest.mark.parametrize("factor", [0, 1, 1.5, -0.1, float("nan")])
@pytest.mark.parametrize("name", [name for name, rule in RULES.items() if "factor" in rule.settings])
def test_bad_factor_is_named(name: str, factor: float):
    with pytest.raises(ValueError, match=f"factor must be between 0 and 1, got {factor}"):
        RULES[name].make_fn(RATE, **{**RULES[name].settings, "factor": factor})


@pytest.mark.parametrize(
    ("make_fn", "arguments", "message"),
    [
        *[
            (dlrd.dynamic_decay, {"min_snr": value}, f"min_snr must be above 0, got {value}")
            for value in [0, -1, float("nan")]
        ],
        *[
            (
                make_fn,
                {**others, name: value},
                f"{name} must be a whole number of at least 1, got {type(value).__name__} {value}",
            )
            for make_fn, name, others in [
                (dlrd.dynamic_decay, "max_tracked", {}),
                (dlrd.stepwise_decay, "interval", {"factor": 0.5}),
                (dlrd.sasa, "interval", {}),
                (dlrd.sasa, "max_samples", {}),
                (dlrd.sasa_plus, "interval", {}),
                (dlrd.sasa_plus, "max_samples", {}),
            ]
            for value in [0, -1, 1.5, True]
        ],
        *[
            (dlrd.power_decay, {"exponent": value}, f"exponent must be .*, got {value}")
            for value in [-1, float("nan"), float("inf")]
        ],
        *[
            (make_fn, {"significance": value}, f"significance must be between 0 and 1, got {value}")
            for make_fn in [dlrd.sasa, dlrd.sasa_plus]
            for value in [0, 1, -0.1]
        ],
        (dlrd.sasa, {"tolerance": 0}, "tolerance must be above 0, got 0"),
        (dlrd.sasa, {"max_samples": 3}, "max_samples must be above 3, got 3"),
        (dlrd.sasa_plus, {"max_samples": 1000}, "max_samples must be above 1000, got 1000"),
    ],
)
def test_bad_arguments_are_named(
    make_fn: Callable[..., optax.GradientTransformation], arguments: dict[str, Any], message: str
):
    with pytest.raises(ValueError, match=message):
        make_fn(RATE, **arguments)


@pytest.mark.parametrize("name", ["dynamic_decay", "sasa", "sasa_plus"])
def test_missing_parameters_are_named(name: str):
    transformation = RULES[name]()

    with pytest.raises(ValueError, match="requires the current value of parameters"):
        transformation.update(jnp.ones(2), transformation.init(jnp.ones(2)))
