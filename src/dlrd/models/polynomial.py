"""Polynomials of a few numbers that stand for the outputs of a program, learnt from its runs."""

import functools
import itertools
import math
import operator
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

MAX_DEGREE, MAX_TERMS = 4, 1400
"""Of a polynomial: the highest degree that has no more terms."""
MAX_NUMBERS = 10**7
"""Of the coefficients, likewise."""
STRENGTHS = 10.0 ** np.arange(-14, 3, 1.5)
"""Of the ridge, as shares of the largest eigenvalue."""
SPANS = 1.0, 8.0, 64.0
"""Of a polynomial kernel, for each dimension: the larger, the smaller are terms of high degree."""


class Polynomial(NamedTuple):
    """Outputs as a polynomial of the coordinates; a tree of arrays to jax."""

    center: Float[Array | np.ndarray, " dim"]
    scale: Float[Array | np.ndarray, " dim"]
    coefficients: Float[
        Array | np.ndarray, "term output"
    ]  # of 1, of each coordinate, and of products of some

    def __call__(self, point: Float[Array, " dim"]) -> Float[Array, " output"]:
        """The outputs there, flat; written with jax."""
        scaled = (point - self.center) / self.scale
        degree = next(
            each
            for each in range(1, MAX_DEGREE + 1)
            if num_terms(len(scaled), each) == len(self.coefficients)
        )
        extended = jnp.concatenate([jnp.ones(1, scaled.dtype), scaled])
        terms = functools.reduce(operator.mul, extended[_factors(len(scaled), degree).T])
        return terms @ self.coefficients


def tangent(
    point: Float[np.ndarray, " dim"],
    outputs: Float[np.ndarray, " output"],
    jacobian: Float[np.ndarray, "dim output"],
) -> Polynomial:
    """The linear one with these outputs and this Jacobian at a point, in the form of those learnt."""
    dim = len(point)
    num = num_terms(dim, degree_for(dim, len(outputs)))
    coefficients = np.concatenate([outputs[None], jacobian, np.zeros((num - 1 - dim, len(outputs)))])
    return Polynomial(point, np.ones_like(point), coefficients)


def regression(
    points: Float[np.ndarray, "run dim"],
    outputs: Float[np.ndarray, "run output"],
    known: Polynomial,
    misses_fn: Callable[[Float[np.ndarray, "run output"]], float],
) -> Polynomial:
    """The tangent, and the ridge regression on what it misses that predicts best, each run from the others.

    The penalty is that of the kernel $(1 + x^⊤ y / s)^k$; of a few spans s and strengths, the best are taken.

    Args:
        points: the coordinates.
        outputs: there.
        known: the tangent.
        misses_fn: what predicted outputs of all runs miss, in all.
    """
    (num, dim), center, scale = points.shape, points.mean(axis=0), points.std(axis=0) + np.finfo(float).tiny
    slopes = np.asarray(known.coefficients[1 : 1 + dim])
    missing = outputs - known.coefficients[0] - (points - known.center) @ slopes
    factors = _factors(dim, degree_for(dim, outputs.shape[1]))
    extended = np.concatenate([np.ones((num, 1)), (points - center) / scale], axis=1)
    terms = functools.reduce(operator.mul, np.moveaxis(extended[:, factors], -1, 0))
    found, least = np.zeros((len(factors), outputs.shape[1])), misses_fn(outputs - missing)
    for span in SPANS:
        weights = _weights(factors, span * dim)
        left, values, right = np.linalg.svd(terms * weights, full_matrices=False)
        inner = left.T @ missing
        # Of what is beyond the terms, nothing is explained.
        beyond = missing - left @ inner if num > len(factors) else 0.0
        share_beyond = 1 - np.sum(left**2, axis=1) if num > len(factors) else 0.0
        for strength in STRENGTHS * values[0] ** 2:
            unexplained = strength / (values**2 + strength)
            residuals = (left * unexplained) @ inner + beyond
            shares = left**2 @ unexplained + share_beyond
            missed = misses_fn(outputs - residuals / shares[:, None])  # each is predicted by the others
            if missed < least:
                shrunk = values / (values**2 + strength)
                found, least = weights[:, None] * (right.T @ (shrunk[:, None] * inner)), missed
    found[0] += known.coefficients[0] + (center - known.center) @ slopes
    found[1 : 1 + dim] += scale[:, None] * slopes
    return Polynomial(center, scale, found)


def num_terms(dim: int, degree: int) -> int:
    """Of a polynomial."""
    return math.comb(dim + degree, degree)


def degree_for(dim: int, num_outputs: int) -> int:
    """The highest that is affordable."""
    most = min(MAX_TERMS, MAX_NUMBERS // num_outputs)
    return max((each for each in range(1, MAX_DEGREE + 1) if num_terms(dim, each) <= most), default=1)


@functools.lru_cache(maxsize=16)
def _factors(dim: int, degree: int) -> Int[np.ndarray, "term degree"]:
    """Of each term, as positions in (1, x₁, x₂, …): the constant first, then the linear terms."""
    return np.array(list(itertools.combinations_with_replacement(range(1 + dim), degree)))


def _weights(factors: Int[np.ndarray, "term degree"], span: float) -> Float[np.ndarray, " term"]:
    """By which terms are multiplied so that their products add up to the kernel."""
    found = []
    for row in factors:
        repeated = math.prod(math.factorial(int(num)) for num in np.unique(row, return_counts=True)[1])
        found.append(math.factorial(len(row)) / repeated / span ** np.count_nonzero(row))
    return np.sqrt(found)
