"""Factors of sparse matrices, against dense ones."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dlrd.families import ordering
from dlrd.families.elimination import Elimination, eliminate
from dlrd.families.pattern import Pattern


def pattern(dim, pairs):
    edges = np.array(sorted({(max(pair), min(pair)) for pair in pairs}), int).reshape(-1, 2)
    return Pattern(dim, edges[:, 0], edges[:, 1])


def chain():
    return pattern(30, [(i, i + 1) for i in range(29)])


def arrow():
    """Locals that depend on all globals."""
    return pattern(24, [(i, j) for i in range(20, 24) for j in range(i)])


def hierarchy():
    """Locals that depend on their group, groups that depend on globals."""
    return pattern(
        44, [(36 + i // 6, i) for i in range(36)] + [(i, j) for i in (42, 43) for j in range(36, i)]
    )


def grid():
    side = 9
    along = [(side * i + j, side * i + j + 1) for i in range(side) for j in range(side - 1)]
    across = [(side * i + j, side * i + side + j) for i in range(side - 1) for j in range(side)]
    return pattern(side**2, along + across)


def scattered():
    pairs = np.random.default_rng(0).integers(0, 60, (90, 2))
    return pattern(60, [pair for pair in pairs.tolist() if pair[0] != pair[1]])


def dense():
    return pattern(12, [(i, j) for i in range(12) for j in range(i)])


def apart():
    return pattern(5, [])


def single():
    return pattern(1, [])


CASES = [chain, arrow, hierarchy, grid, scattered, dense, apart, single]
DTYPES = ["float32", "float64"]


class Example:
    """A positive definite matrix with a pattern, and all that an elimination makes of it."""

    def __init__(self, pattern, dtype):
        rng = np.random.default_rng(1)
        entries = rng.normal(size=len(pattern.rows))
        matrix = np.zeros((pattern.dim, pattern.dim))
        matrix[pattern.rows, pattern.columns] = entries
        matrix += matrix.T + np.diag(1 + np.abs(matrix + matrix.T).sum(axis=1))
        self.elimination = elimination = levels_of(pattern)
        order = elimination.order
        lower = np.zeros(elimination.num_entries)
        lower[elimination.places(pattern)] = entries
        values = jnp.asarray(matrix.diagonal()[order], dtype), jnp.asarray(lower, dtype)
        self.matrix = self.dense(values)  # as rounded to the type
        self.matrix += np.tril(self.matrix, -1).T
        self.original = matrix
        self.vectors = np.asarray(rng.normal(size=(2, 3, pattern.dim)), dtype)
        self.results = jax.tree.map(np.asarray, results(elimination, values, self.vectors))
        self.factor = self.dense(self.results["factorized"])
        # Of each sum that makes an entry or a coordinate; two more roundings for the pivot.
        num_terms = 3 + np.max(np.count_nonzero(self.factor, axis=1) + np.count_nonzero(self.factor, axis=0))
        self.rounding = num_terms * float(np.finfo(dtype).eps)

    def dense(self, values):
        """As a lower triangular matrix."""
        matrix = np.diag(np.asarray(values[0], float))
        matrix[self.elimination.rows, self.elimination.columns] = values[1]
        return matrix


def levels_of(pattern):
    """The elimination with as many levels as there can be, as of a large pattern."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ordering, "SMALL_TAIL", 2)
        return eliminate(pattern)


@eqx.filter_jit
def results(elimination, values, vectors):
    factor = elimination.factorized(*values)
    return {
        "factorized": factor,
        "product": elimination.product(*factor),
        "inverse": elimination.inverse(*factor),
        "times_lower": elimination.times_lower(*factor, vectors),
        "times_upper": elimination.times_upper(*factor, vectors),
        "solve_lower": elimination.solve_lower(*factor, vectors),
        "solve_upper": elimination.solve_upper(*factor, vectors),
    }


@functools.cache
def example(case, dtype):
    with jax.enable_x64(dtype == "float64"):
        return Example(case(), dtype)


@pytest.fixture(params=CASES, ids=lambda case: case.__name__, scope="module")
def case(request):
    return request.param


@pytest.fixture(params=DTYPES, scope="module")
def made(request, case):
    return example(case, request.param)


def test_the_cases_have_levels_and_tails():
    counts = {each.__name__: levels_of(each()) for each in CASES}
    assert all(counts[name].num_levels > 1 for name in ("chain", "hierarchy", "grid", "scattered"))
    assert [counts[name].num_levels for name in ("arrow", "dense", "apart", "single")] == [1, 0, 1, 1]
    tails = {name: each.dim - each.starts[-1] for name, each in counts.items()}
    assert (tails["arrow"], tails["dense"], tails["apart"], tails["single"]) == (4, 12, 0, 0)


def test_the_type_stays(made):
    dtypes = {leaf.dtype for leaf in jax.tree.leaves(made.results)}
    assert dtypes == {made.vectors.dtype}


def test_factor(made):
    """Higham, Accuracy and Stability of Numerical Algorithms, theorem 10.3: |T Tᵀ − A| ≤ γ |T| |Tᵀ|."""
    assert np.all(made.factor.diagonal() > 0)
    error = np.abs(made.factor @ made.factor.T - made.matrix)
    np.testing.assert_array_less(error, made.rounding * np.abs(made.factor) @ np.abs(made.factor.T) + 1e-300)


def test_product(made):
    error = np.abs(made.dense(made.results["product"]) - np.tril(made.factor @ made.factor.T))
    np.testing.assert_array_less(error, made.rounding * np.abs(made.factor) @ np.abs(made.factor.T) + 1e-300)


def test_inverse(made):
    """Entries of the factor's pattern alone. Errors are amplified by at most the condition number."""
    covariance = np.linalg.inv(made.factor @ made.factor.T)
    actual = made.dense(made.results["inverse"])
    is_known = made.dense((np.ones(len(made.matrix)), np.ones(made.elimination.num_entries)))
    bound = made.rounding * np.linalg.cond(made.matrix) * np.abs(covariance).max()
    np.testing.assert_allclose(actual, np.tril(covariance) * is_known, rtol=0, atol=bound)


@pytest.mark.parametrize("side", ["lower", "upper"])
def test_times(made, side):
    factor = made.factor if side == "lower" else made.factor.T
    error = np.abs(made.results[f"times_{side}"] - made.vectors @ factor.T)
    np.testing.assert_array_less(error, made.rounding * np.abs(made.vectors) @ np.abs(factor.T) + 1e-300)


@pytest.mark.parametrize("side", ["lower", "upper"])
def test_solve(made, side):
    """Higham, theorem 8.5: the solution is that of a factor with each entry changed by rounding."""
    factor = made.factor if side == "lower" else made.factor.T
    solution = np.asarray(made.results[f"solve_{side}"], float)
    residual = np.abs(solution @ factor.T - made.vectors)
    np.testing.assert_array_less(residual, made.rounding * np.abs(solution) @ np.abs(factor.T) + 1e-300)


@pytest.mark.usefixtures("x64")
def test_the_order_is_a_permutation_there_and_back(case):
    made = example(case, "float64")
    elimination, x = made.elimination, made.vectors
    np.testing.assert_array_equal(elimination.permuted(x), x[..., elimination.order])
    np.testing.assert_array_equal(elimination.unpermuted(elimination.permuted(x)), x)
    expected = made.original[np.ix_(elimination.order, elimination.order)]
    np.testing.assert_array_equal(made.matrix, expected)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("case", [grid, dense], ids=lambda case: case.__name__)
def test_what_is_not_positive_definite_has_no_factor(case):
    elimination = levels_of(case())
    lower = jnp.zeros(elimination.num_entries)
    for node in (0, elimination.dim - 1):  # in a level, where there is one, and in the tail
        for value in (-1.0, 0.0):
            diagonal = jnp.ones(elimination.dim).at[node].set(value)
            factor = elimination.factorized(diagonal, lower)
            assert not np.isfinite(np.asarray(factor[0])).all()


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (0,)])
def test_leading_axes_are_batches(shape):
    made = example(arrow, "float64")
    vectors = jnp.asarray(made.vectors.reshape(-1, 24)[: int(np.prod(shape))].reshape(*shape, 24))
    factor = made.results["factorized"]
    expected = made.results["solve_upper"].reshape(-1, 24)[: int(np.prod(shape))].reshape(*shape, 24)
    # The tail's solver treats one right-hand side and several in another order.
    np.testing.assert_allclose(made.elimination.solve_upper(*factor, vectors), expected, rtol=1e-13)


@pytest.mark.usefixtures("x64")
def test_derivatives_are_those_of_dense_factors():
    made = example(scattered, "float64")
    elimination, weights = made.elimination, jnp.asarray(made.vectors[0])

    def matrix(values):
        return jnp.diag(values[0]).at[elimination.rows, elimination.columns].set(values[1])

    def sparse_sum(values, vectors):
        solved = [solve(*values, vectors) for solve in (elimination.solve_lower, elimination.solve_upper)]
        times = [times(*values, vectors) for times in (elimination.times_lower, elimination.times_upper)]
        return sum(jnp.sum(weights * each**2) for each in solved + times)

    def dense_sum(values, vectors):
        factor = matrix(values)
        inverse = jnp.linalg.inv(factor)
        images = [vectors @ each for each in (inverse.T, inverse, factor.T, factor)]
        return sum(jnp.sum(weights * each**2) for each in images)

    point = made.results["factorized"], jnp.asarray(made.vectors[1])
    gradients = [jax.jit(jax.grad(each, argnums=(0, 1)))(*point) for each in (sparse_sum, dense_sum)]
    for ours, theirs in zip(*map(jax.tree.leaves, gradients), strict=True):
        bound = made.rounding * np.linalg.cond(made.factor) ** 2 * float(jnp.abs(theirs).max())
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=bound)
    forward = [
        jax.jit(lambda p, each=each: jax.jvp(each, p, p)[1])(point) for each in (sparse_sum, dense_sum)
    ]
    np.testing.assert_allclose(*forward, rtol=made.rounding * np.linalg.cond(made.factor) ** 2)


def test_made_of_its_own_arrays_it_is_the_same():
    elimination = levels_of(scattered())
    again = Elimination(elimination.order, elimination.starts, elimination.rows, elimination.columns)
    assert eqx.tree_equal(elimination, again)
