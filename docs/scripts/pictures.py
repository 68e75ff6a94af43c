"""Draws the pictures of the front page and of the page about diagnostics: python docs/scripts/pictures.py

Each is written to docs/assets twice, for light and for dark pages. The same versions of the libraries give
the same files.
"""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpyro.infer import MCMC, NUTS

import dlrd
from dlrd.plots.panels import fit_panels
from dlrd.plots.style import GRID, INK, LINE, MARK, MUTED, house_style

ASSETS = Path(__file__).resolve().parents[1] / "assets"
CLOUD = "#9aa5b1"  # draws of the reference
DARK = {
    INK: "#dbe2e8",
    MUTED: "#97a4b0",
    GRID: "#323c46",
    LINE: "#56b4e9",
    MARK: "#ff9d57",
    CLOUD: "#6b7885",
    "#ffffff": "#14191f",
}
"""The colours of dark pages, by those of light ones."""
INSIDE = {"50 %": 1.177, "95 %": 2.448}
"""Radii of the circles that hold so much of a normal in two dimensions."""

NUM_DRAWS = 800
"""Of a posterior that is drawn as a cloud of points."""

DOSE = jnp.array([1.691, 1.724, 1.755, 1.784, 1.811, 1.837, 1.861, 1.884])
BEETLES = jnp.array([59, 60, 62, 56, 63, 59, 62, 60])
DEAD = jnp.array([6, 13, 18, 28, 52, 53, 61, 60])


def main() -> None:
    ASSETS.mkdir(exist_ok=True)
    draw_beetles()
    draw_courses()
    draw_shapes()


def beetles(dose: Any, count: Any, dead: Any = None) -> None:
    """The model of the front page: how many die of a dose, half of them at `half`."""
    half = numpyro.sample("half", dist.Normal(1.8, 0.1))
    slope = numpyro.sample("slope", dist.LogNormal(3.0, 1.0))
    numpyro.sample("dead", dist.Binomial(count, logits=slope * (dose - half)), obs=dead)


def draw_beetles() -> None:
    """The data with the fitted curve, and the posterior beside that of NUTS."""
    fit = dlrd.fit(dlrd.models.numpyro(beetles, DOSE, BEETLES, DEAD), progress=False)
    chains = MCMC(NUTS(beetles), num_warmup=1000, num_samples=1000, num_chains=4, progress_bar=False)
    chains.run(jax.random.key(0), DOSE, BEETLES, DEAD, extra_fields=("num_steps",))
    reference, ours = chains.get_samples(), fit.sample(0, 4000)
    assert fit.verdict is not None
    print(f"beetles: {fit.verdict.num_gradients:,} gradients and {fit.seconds:.1f} s, {fit.outcome.name}")
    print(f"NUTS: {int(chains.get_extra_fields()['num_steps'].sum()):,} leapfrog steps after the warm-up")
    for name in reference:
        error = abs(np.mean(ours[name]) - np.mean(reference[name])) / np.std(reference[name])
        print(f"{name}: means differ by {error:.2f} sd")

    def curve(axes: Axes) -> None:
        at = np.linspace(1.67, 1.905, 200)
        probability = jax.nn.sigmoid(ours["slope"][:, None] * (at - ours["half"][:, None]))
        low, middle, high = np.quantile(probability, [0.05, 0.5, 0.95], axis=0)
        axes.fill_between(at, low, high, color=LINE, alpha=0.22, linewidth=0, label="90 % of the posterior")
        axes.plot(at, middle, color=LINE, linewidth=2, label="median")
        axes.plot(DOSE, DEAD / BEETLES, "o", color=INK, markersize=6, label="beetles of a dose")
        axes.set(xlabel="log dose", ylabel="share that died", ylim=(-0.02, 1.04))
        axes.legend(loc="upper left", frameon=False)

    def posterior(axes: Axes) -> None:
        cloud = axes.plot(
            reference["half"][::4], reference["slope"][::4], ".", color=CLOUD, markersize=3.5, alpha=0.7
        )
        rings = [ring(fit.family, radius) for radius in INSIDE.values()]
        lines = [axes.plot(each[:, 0], np.exp(each[:, 1]), color=LINE, linewidth=2)[0] for each in rings]
        axes.legend([cloud[0], lines[0]], ["NUTS, 1,000 draws", "dlrd, 50 and 95 %"], frameon=False)
        axes.set(xlabel="dose at which half die", ylabel="slope", xlim=(1.756, 1.7865), ylim=(23, 49))

    for name, draw in {"beetles-curve": curve, "beetles-posterior": posterior}.items():
        save(name, (5.6, 3.7), draw)


def draw_courses() -> None:
    """A fit whose rate was lowered in time, and one that ended on its way: ELBO, and signal over noise."""

    def log_density(z: jax.Array) -> jax.Array:
        return -0.5 * jnp.sum((z - 3.0) ** 2 / jnp.linspace(0.5, 2.0, 20)) - 0.3 * jnp.sum(jnp.abs(z) ** 1.5)

    for name, rate in {"course-arrived": 3e-2, "course-on-its-way": 1e-3}.items():
        optimizer = optax.chain(optax.scale_by_adam(), dlrd.dynamic_decay(rate))
        family = dlrd.MeanFieldNormal.standard(20)
        fit = dlrd.fit(log_density, family, optimizer=optimizer, steps=2_000, progress=False)
        print(f"{name}: {len(fit.history.decays)} decays, ELBO {fit.elbo:.3f} ± {fit.elbo_error:.2g}")
        shown = [panel for panel in fit_panels(fit) if panel.title in ("ELBO", "Signal-to-noise ratio")]

        def draw(*axes: Axes, shown: list[Any] = shown) -> None:
            for each, panel in zip(axes, shown, strict=True):
                each.set_title(panel.title)
                panel.draw(each)

        save(name, (5.6, 4.6), draw, num_panels=2)


def draw_shapes() -> None:
    """Three posteriors with draws of theirs, the normals that were fitted to them, and k̂."""
    generator = np.random.default_rng(0)
    noise = generator.normal(size=(NUM_DRAWS, 2))
    lean, bend, steep, odds = 0.8, 0.4, 0.02, 0.5

    def close(z: jax.Array) -> jax.Array:
        squares = z[0] ** 2 + (z[1] - lean * z[0]) ** 2
        return -0.5 * squares - steep * squares**2

    def bent(z: jax.Array) -> jax.Array:
        return -0.5 * (z[0] ** 2 + (z[1] - bend * (z[0] ** 2 - 1)) ** 2)

    def two(z: jax.Array) -> jax.Array:
        return jnp.logaddexp(-0.5 * jnp.sum((z - 2) ** 2), -0.5 * jnp.sum((z + 2) ** 2) - odds)

    is_kept = generator.uniform(size=NUM_DRAWS) < np.exp(-steep * np.sum(noise**2, axis=1) ** 2)
    is_right = generator.uniform(size=(NUM_DRAWS, 1)) < 1 / (1 + np.exp(-odds))
    first, second = noise.T
    cases = {
        "shape-close": (close, np.stack([first, second + lean * first], axis=1)[is_kept]),
        "shape-bent": (bent, np.stack([first, second + bend * (first**2 - 1)], axis=1)),
        "shape-two": (two, noise + np.where(is_right, 2, -2)),
    }
    for name, (log_density, draws) in cases.items():
        fit = dlrd.fit(dlrd.models.function(log_density, 2), progress=False)
        assert fit.verdict is not None
        print(f"{name}: {fit.outcome.name}, {fit.verdict.tail_sentence}")

        def draw(axes: Axes, fit: dlrd.Fit = fit, draws: np.ndarray = draws) -> None:
            assert fit.verdict is not None
            axes.plot(draws[:, 0], draws[:, 1], ".", color=CLOUD, markersize=3, alpha=0.6)
            for radius in INSIDE.values():
                axes.plot(*ring(fit.family, radius).T, color=LINE, linewidth=2)
            tail = f" k̂ = {fit.verdict.tail_shape:.2f} ± {fit.verdict.tail_shape_error:.2f}"
            axes.set_title(tail.replace("-", "−"))
            axes.set(xticks=[], yticks=[])

        save(name, (3.6, 3.4), draw)


def ring(family: Any, radius: float) -> np.ndarray:
    """The ellipse of a normal in two dimensions at so many standard deviations."""
    angle = np.linspace(0, 2 * np.pi, 200)
    circle = radius * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return np.asarray(family.mean) + circle @ np.asarray(family.scale_tril).T


def save(name: str, size: tuple[float, float], draw: Callable[..., None], num_panels: int = 1) -> None:
    """Writes what `draw` puts on its axes, in the colours of light and of dark pages."""
    with house_style(**{"svg.hashsalt": name}):
        figure = Figure(figsize=size, layout="constrained")
        draw(*np.ravel(figure.subplots(num_panels)))
        written = io.StringIO()
        figure.savefig(written, format="svg", transparent=True, metadata={"Date": None})
    svg = written.getvalue()
    (ASSETS / f"{name}-light.svg").write_text(svg, encoding="utf-8")
    for light, dark in DARK.items():
        svg = svg.replace(light, dark)
    (ASSETS / f"{name}-dark.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
