"""One self-contained web page about a fit: nothing is loaded from elsewhere."""

import datetime
import html
import importlib.resources

import jax
import numpy as np
import optax

from dlrd import __version__
from dlrd.fitting.result import Fit
from dlrd.fitting.summary import QUANTILES, Summary
from dlrd.fitting.verdict import Verdict
from dlrd.plots import first_of, panel_images

MAX_OPEN_ROWS = 12
"""A longer table scrolls by itself."""
MAX_VARIABLES = 12
"""Named among the facts."""
MAX_EVENTS = 12
"""Decays, or resets, listed with their steps."""


def fit_page(fit: Fit) -> str:
    """The page: how the fit ended, key facts, its course in pictures, the fitted distribution as a table.

    Args:
        fit: what `dlrd.fit` returned.

    Returns:
        HTML with its style and pictures inside, for wide and narrow windows, light and dark.

    Example:
        >>> import dlrd
        >>> from dlrd.report import fit_page
        >>> fit = dlrd.fit(lambda z: -((z - 3.0) @ z), dlrd.MeanFieldNormal.standard(2), key=0,
        ...                progress=False)
        >>> print(fit_page(fit)[:15])
        <!doctype html>
    """
    images = panel_images(fit)
    summary = fit.summary()
    style = importlib.resources.files("dlrd.report").joinpath("page.css").read_text(encoding="utf-8")
    warnings = "\n".join(
        f'<p class="warning">{_escaped(_sentence(warning))}</p>'
        for warning in (fit.verdict.warnings if fit.verdict else [])
    )
    facts = "\n".join(
        f"<div><dt>{_escaped(name)}</dt><dd>{_escaped(value)}</dd></div>"
        for name, value in _facts(fit, summary).items()
    )
    panels = "\n".join(
        f"<figure><figcaption>{_escaped(image.title)}</figcaption>\n{image.svg}</figure>" for image in images
    )
    first = first_of(fit)
    note = f'<p class="note">{first} All are in the table.</p>\n' if first else ""
    versions = f"dlrd {__version__}, jax {jax.__version__}, optax {optax.__version__}"
    now = datetime.datetime.now().astimezone().strftime("%Y-%m-%d, %H:%M %Z")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{_escaped(f"{type(fit.family).__name__}, {fit.outcome.name.lower()}")}</title>
<style>
{style}</style>
</head>
<body>
<header>
<p class="kind">Variational fit</p>
<h1>{_escaped(fit.outcome.sentence)}</h1>
{warnings}
<dl class="facts">
{facts}
</dl>
</header>
<main>
<h2>Course and result</h2>
<div class="panels">
{panels}
</div>
{note}<h2>Fitted {"variables" if fit.has_variables else "distribution"}</h2>
{_table(summary)}
</main>
<footer>Made with {_escaped(versions)} on {now}.</footer>
</body>
</html>
"""


def _facts(fit: Fit, summary: Summary) -> dict[str, str]:
    shapes = [f"{name} {_shape(shape)}".rstrip() for name, shape in summary.shapes.items()]
    others = f" and {len(shapes) - MAX_VARIABLES:,} more" if len(shapes) > MAX_VARIABLES else ""
    resets = {"Went back to the best": _events(fit.history.resets)} if len(fit.history.resets) else {}
    num_failed = int(fit.history.failed.sum())
    failed = {"Draws left out, as they failed": f"{num_failed:,}"} if num_failed else {}
    return {
        "ELBO": _elbo(fit),
        **_verdict_facts(fit.verdict),
        "Family": type(fit.family).__name__,
        "Dimension": f"{len(fit.names):,}",
        **({"Variables": ", ".join(shapes[:MAX_VARIABLES]) + others} if fit.has_variables else {}),
        "Steps": f"{fit.num_steps:,}",
        "Draws a step": f"{fit.num_draws:,}",
        "Time": f"{fit.seconds:.1f} s" if fit.seconds < 120 else f"{fit.seconds / 60:.1f} min",
        "Decays": _events(fit.history.decays),
        **resets,
        **failed,
    }


def _events(steps: np.ndarray) -> str:
    """How many there were, and when."""
    if not len(steps):
        return "none"
    shown = ", ".join(f"{step:,}" for step in steps[:MAX_EVENTS])
    more = f" and {len(steps) - MAX_EVENTS:,} more" if len(steps) > MAX_EVENTS else ""
    return f"{len(steps):,}, at step{'s' * (len(steps) > 1)} {shown}{more}"


def _shape(shape: tuple[int, ...]) -> str:
    return f"({' × '.join(map(str, shape))})" if shape else ""


def _verdict_facts(verdict: Verdict | None) -> dict[str, str]:
    if verdict is None:
        return {}
    spent = ", ".join(f"{phase} {number:,}" for phase, number in verdict.gradients.items() if number)
    facts = {}
    if np.isfinite(verdict.gap):
        facts["Gap to the best nearby"] = (
            f"{max(verdict.gap, 0):.1g} ± {verdict.gap_error:.1g} nats (tolerance {verdict.tolerance:g}"
            f"{'' if verdict.is_certain else ', not reached'})"
        )
    facts["Pareto k̂"] = verdict.tail_sentence.removeprefix("k̂ = ")
    if len(verdict.rungs) > 1:
        facts["Tried, each from the one before"] = "; ".join(verdict.rung_sentences)
    facts[verdict.spent_on.capitalize()] = f"{verdict.num_gradients:,} ({spent})"
    if verdict.notes:
        facts["Outside"] = " ".join(verdict.notes)
    return facts


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _elbo(fit: Fit) -> str:
    """The ELBO, to as many digits as its standard error supports."""
    if not np.isfinite(fit.elbo):
        return "not known"
    error = fit.elbo_error
    if not np.isfinite(error) or error <= 1e-9 * abs(fit.elbo):
        return _signed(f"{fit.elbo:,.6g}")
    decimals = max(0, 1 - int(np.floor(np.log10(error))))
    return _signed(f"{fit.elbo:,.{decimals}f} ± {error:,.{decimals}f}")


def _table(summary: Summary) -> str:
    head = "".join(
        f'<th scope="col">{name}</th>' for name in ["", "mean", "sd", *map("{:.0%}".format, QUANTILES)]
    )
    numbers = np.column_stack([summary.mean, summary.std, summary.quantiles.T])
    rows = "\n".join(
        f'<tr><th scope="row">{_escaped(name)}</th>'
        + "".join(f"<td>{_signed(summary.shown(number))}</td>" for number in row)
        + "</tr>"
        for name, row in zip(summary.names, numbers, strict=True)
    )
    table = f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>"
    kind = "scrolled" if len(summary.names) <= MAX_OPEN_ROWS else "scrolled long"
    return f'<div class="{kind}" tabindex="0" role="region" aria-label="Summary">{table}</div>'


def _signed(text: str) -> str:
    """With a minus sign as wide as the plus sign."""
    return text.replace("-", "−")


def _escaped(text: str) -> str:
    return html.escape(text)
