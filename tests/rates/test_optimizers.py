"""The optimisers of the paper's section 2.2, as optax chains, against its formulas: ε inside the root."""

from collections.abc import Callable, Iterator

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import dlrd

RATE = 0.01
EPSILON = 1e-8
Steps = Iterator[np.ndarray]


def sgd(gradients: np.ndarray) -> Steps:
    for gradient in gradients:
        yield RATE * gradient


def adagrad(gradients: np.ndarray) -> Steps:
    squares = np.zeros(gradients.shape[1])
    for gradient in gradients:
        squares = squares + gradient**2
        yield RATE * gradient / np.sqrt(squares + EPSILON)


def rmsprop(gradients: np.ndarray, decay: float = 0.999, is_corrected: bool = False) -> Steps:
    average = np.zeros(gradients.shape[1])
    for i, gradient in enumerate(gradients, 1):
        average = decay * average + (1 - decay) * gradient**2
        corrected = average / (1 - decay**i) if is_corrected else average
        yield RATE * gradient / np.sqrt(corrected + EPSILON)


def rmsprop_corrected(gradients: np.ndarray) -> Steps:
    return rmsprop(gradients, is_corrected=True)


def adam(gradients: np.ndarray, first_decay: float = 0.9, second_decay: float = 0.999) -> Steps:
    first = second = np.zeros(gradients.shape[1])
    for i, gradient in enumerate(gradients, 1):
        first = first_decay * first + (1 - first_decay) * gradient
        second = second_decay * second + (1 - second_decay) * gradient**2
        first_corrected = first / (1 - first_decay**i)
        second_corrected = second / (1 - second_decay**i)
        yield RATE * first_corrected / np.sqrt(second_corrected + EPSILON)


def adamax(gradients: np.ndarray, epsilon: float = EPSILON) -> Steps:
    """The largest gradient, its memory fading, in place of the root.

    Kingma and Ba have no ε here, so that a gradient of zero is divided by zero.
    """
    first = norm = np.zeros(gradients.shape[1])
    for i, gradient in enumerate(gradients, 1):
        first = 0.9 * first + (1 - 0.9) * gradient
        norm = np.maximum(0.999 * norm, np.abs(gradient) + epsilon)
        yield RATE * first / (1 - 0.9**i) / norm


CHAINS = {
    sgd: optax.identity(),
    adagrad: optax.scale_by_rss(initial_accumulator_value=0.0, eps=EPSILON),
    rmsprop: optax.scale_by_rms(decay=0.999, eps=EPSILON, eps_in_sqrt=True),
    rmsprop_corrected: optax.scale_by_rms(decay=0.999, eps=EPSILON, eps_in_sqrt=True, bias_correction=True),
    adam: optax.scale_by_adam(b1=0.9, b2=0.999, eps=0.0, eps_root=EPSILON),
    adamax: optax.scale_by_adamax(b1=0.9, b2=0.999, eps=EPSILON),
}


def steps_of(direction: optax.GradientTransformation, gradients: np.ndarray) -> np.ndarray:
    """What a chain of the direction and a fixed rate descends by."""
    # The rate falls only after more steps than there are.
    optimizer = optax.chain(direction, dlrd.stepwise_decay(RATE, 0.5, interval=10**6))
    params = jnp.zeros(gradients.shape[1])
    state = optimizer.init(params)
    steps = []
    for gradient in gradients:
        update, state = optimizer.update(jnp.asarray(gradient), state, params)
        steps.append(-np.asarray(update))
    return np.stack(steps)


def random_gradients() -> np.ndarray:
    """From far below to far above √ε, where it matters most that ε is inside the root; the last are rare."""
    rng = np.random.default_rng(0)
    gradients = rng.normal(size=(50, 10)) * 10.0 ** np.asarray([*range(-6, 2), 0, 0])
    gradients[:20, 8] = 0
    gradients[:, 9] = 0
    return gradients


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("formula", CHAINS, ids=lambda formula: formula.__name__)
def test_chain_is_the_formula(formula: Callable[[np.ndarray], Steps]):
    gradients = random_gradients()

    actual, expected = steps_of(CHAINS[formula], gradients), np.stack(list(formula(gradients)))

    # Moments are sums of at most 50 terms, and 1 − 0.999^i has lost three digits for i = 1: 1000 · 50 eps.
    # The first moment may cancel: its error is then measured by the size of its terms, RATE at the most.
    np.testing.assert_allclose(actual, expected, rtol=1e-11, atol=1e-11 * RATE)


@pytest.mark.usefixtures("x64")
def test_adamax_without_epsilon_is_kingma_and_bas():
    gradients = random_gradients()[:, :8]

    actual = steps_of(optax.scale_by_adamax(b1=0.9, b2=0.999, eps=0.0), gradients)

    expected = np.stack(list(adamax(gradients, epsilon=0.0)))
    np.testing.assert_allclose(actual, expected, rtol=1e-11, atol=1e-11 * RATE)  # as above


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("direction", "formula"),
    [
        (optax.scale_by_adam(), adam),
        (optax.scale_by_rms(decay=0.999, eps=EPSILON, eps_in_sqrt=False), rmsprop),
        (optax.scale_by_rss(eps=EPSILON), adagrad),
    ],
    ids=["adam", "rmsprop", "adagrad"],
)
def test_other_settings_differ_for_small_gradients(
    direction: optax.GradientTransformation, formula: Callable[[np.ndarray], Steps]
):
    """So that the settings above are seen to matter: optax's defaults, or ε outside the root."""
    gradients = random_gradients()[:, :2]

    actual, expected = steps_of(direction, gradients), np.stack(list(formula(gradients)))

    assert np.max(np.abs(actual - expected)) > 0.1 * np.max(np.abs(expected))
