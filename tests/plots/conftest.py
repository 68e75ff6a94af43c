"""What the tests of pictures share: fits, and one figure that all look at."""

import dataclasses
from collections.abc import Callable

import flowjax.distributions
import flowjax.flows
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jaxtyping import Array
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import dlrd
from dlrd.plots import plot_fit
from dlrd.plots.panels import fit_panels


def log_density(z: Array) -> Array:
    return -0.5 * jnp.sum((z - 3.0) ** 2) - 0.01 * jnp.sum(z**4)


@pytest.fixture(scope="session")
def fitted() -> Callable[..., dlrd.Fit]:
    def run(
        family: dlrd.families.Family,
        optimizer: optax.GradientTransformation | None = None,
        steps: int = 300,
        num_draws: int = 8,
    ) -> dlrd.Fit:
        optimizer = optimizer or optax.chain(optax.scale_by_adam(), dlrd.dynamic_decay(1e-1))
        return dlrd.fit(
            log_density, family, key=0, optimizer=optimizer, steps=steps, num_draws=num_draws, progress=False
        )

    return run


@pytest.fixture(scope="session")
def fit(fitted: Callable[..., dlrd.Fit]) -> dlrd.Fit:
    fit = fitted(dlrd.FullRankNormal.standard(5), steps=3000)
    assert len(fit.history.decays) > 1
    return fit


@pytest.fixture(scope="session")
def flow_fit(fitted: Callable[..., dlrd.Fit]) -> dlrd.Fit:
    """Of a family that does not know its moments."""
    base = flowjax.distributions.Normal(jnp.zeros(2), 1.0)
    flow = flowjax.flows.masked_autoregressive_flow(
        jax.random.key(0), base_dist=base, nn_width=4, nn_depth=1, flow_layers=1
    )
    return fitted(flow, steps=50)


@pytest.fixture(scope="session")
def figure(fit: dlrd.Fit) -> Figure:
    return plot_fit(fit)


@pytest.fixture(scope="session")
def with_history() -> Callable[..., dlrd.Fit]:
    """The fit with other columns in its history."""

    def replaced(fit: dlrd.Fit, **columns: np.ndarray) -> dlrd.Fit:
        return dataclasses.replace(fit, history=dataclasses.replace(fit.history, **columns))

    return replaced


@pytest.fixture(scope="session")
def panels_of() -> Callable[[dlrd.Fit], dict[str, Axes]]:
    """The panels of a fit, each drawn by itself, by their titles."""

    def drawn(fit: dlrd.Fit) -> dict[str, Axes]:
        panels = {panel.title: Figure().subplots() for panel in fit_panels(fit)}
        for panel in fit_panels(fit):
            panel.draw(panels[panel.title])
        return panels

    return drawn
