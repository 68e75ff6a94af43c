"""The page of the reproduction: claims first, then each figure. Nothing is loaded from elsewhere."""

import base64
import html
import importlib.resources
from dataclasses import asdict, dataclass
from pathlib import Path

from dlrd.paper.claims import Claim
from dlrd.paper.experiments.batch import Results
from dlrd.paper.experiments.spec import Figure
from dlrd.paper.guarded import false_alarms, in_words, shares

_PROBLEMS = {
    "synthetic-1d": "synthetic, d = 1; mean-field",
    "synthetic": "synthetic, d = 100; mean-field",
    "logistic": "logistic regression, 31 coefficients; full rank",
    "field": "diffusivity field, 29 coefficients; full rank",
    "mixture": "two normals, d = 5; mixture of two",
    "flow": "banana, d = 2; coupling flow",
}


@dataclass(frozen=True)
class Facts:
    """How the run was made."""

    scale: str
    date: str
    versions: dict[str, str]
    machine: str
    wall_seconds: float  # of all calls that it took


def reproduction_page(
    figures: list[Figure], found: dict[str, Results], claims: list[Claim], facts: Facts, folder: Path
) -> str:
    """The whole page as HTML.

    Args:
        figures: those that were drawn, as files in `folder`/figures.
        found: the results by the name of their batch.
        claims: those that could be checked.
        facts: how the run was made.
        folder: where the page goes.
    """
    style = importlib.resources.files("dlrd.paper").joinpath("page.css").read_text(encoding="utf-8")
    num_holding = sum(claim.holds for claim in claims)
    versions = ", ".join(f"{name} {version}" for name, version in facts.versions.items())
    sections = "\n".join(_section(figure, found, folder) for figure in figures)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Dynamic learning rate decay, reproduced</title>
<style>
{style}</style>
</head>
<body>
<header>
<h1>Dynamic learning rate decay for stochastic variational inference, reproduced</h1>
<p><strong>{num_holding} of {len(claims)}</strong> checks of the paper's claims hold in this run, at the
{html.escape(facts.scale)} scale. All are medians over the seeds; what is called final is the median over the
last twentieth of the recorded points.</p>
<p class="facts">{html.escape(facts.date)} · {facts.wall_seconds / 60:.1f} minutes on
{html.escape(facts.machine)} · {html.escape(versions)}</p>
</header>
<main>
<h2>The claims</h2>
{_table(claims)}
{_guard(found)}
{sections}
</main>
</body>
</html>
"""


def _table(claims: list[Claim]) -> str:
    rows = "\n".join(
        f'<tr class="{"holds" if claim.holds else "fails"}">'
        f'<td class="verdict">{"✓ holds" if claim.holds else "✗ does not hold"}</td>'
        f"<td>{html.escape(claim.paper)}<br><code>{html.escape(claim.name)}</code></td>"
        f"<td>{html.escape(claim.measured)}{_why(claim)}</td></tr>"
        for claim in claims
    )
    return (
        '<div class="scrolled"><table class="claims">\n'
        "<thead><tr><th>Verdict</th><th>The paper says</th><th>Measured</th></tr></thead>"
        f"\n<tbody>\n{rows}\n</tbody>\n</table></div>"
    )


def _why(claim: Claim) -> str:
    return f"<br><em>{html.escape(claim.why)}</em>" if claim.why else ""


def _guard(found: dict[str, Results]) -> str:
    """False alarms, and what the guard gained where rates were far too large."""
    num_runs, resets = false_alarms(found)
    rows = "\n".join(
        "<tr>"
        + "".join(
            f"<td>{text}</td>"
            for text in (
                f"{row.problem}, {row.optimizer}",
                f"{row.alone} of {row.num_runs}",
                f"{row.guarded} of {row.num_runs}",
                f"{row.num_lost_alone}",
                f"{row.num_lost_guarded}",
            )
        )
        + "</tr>"
        for row in shares(found)
    )
    names = ("problem, optimiser", "near the best, alone", "with the guard", "lost, alone", "with the guard")
    head = "".join(f"<th>{name}</th>" for name in names)
    table = f"""<div class="scrolled"><table><thead><tr>{head}</tr></thead>
<tbody>
{rows}
</tbody></table></div>"""
    return f"""<section>
<h2>The guard against divergence</h2>
<p>{num_runs:,} runs, all of the paper's and those on the rule's constants and on other families, had the
guard on. It went back: {html.escape(in_words(resets))}.
Until it acts, its steps are those of the plain loop.</p>
{table if rows else ""}
<p>With the rule, from rates of 1e-3 to 1e3. Near the best: within a factor of two of the best rate's median;
lost: more than a thousand times as far off, or not finite.</p>
</section>"""


def _section(figure: Figure, found: dict[str, Results], folder: Path) -> str:
    picture = base64.b64encode((folder / "figures" / f"{figure.name}.png").read_bytes()).decode()
    batches = [found[batch.name] for batch in figure.batches]
    rows = "\n".join(
        "<tr>"
        + "".join(
            f"<td>{html.escape(text)}</td>"
            for text in (
                _PROBLEMS[results.batch.problem],
                results.batch.optimizer,
                _rules(results),
                f"{results.batch.num_draws}",
                f"{results.batch.steps:,}",
                f"{results.batch.num_seeds}",
                f"{results.seconds:.0f}",
            )
        )
        + "</tr>"
        for results in batches
    )
    names = (
        "problem; family",
        "optimiser",
        "rules, rates η₀",
        "draws S",
        "steps",
        "seeds",
        "seconds on a core",
    )
    head = "".join(f"<th>{name}</th>" for name in names)
    note = f"<p>{html.escape(figure.note)}</p>" if figure.note else ""
    return f"""<section>
<h2>{html.escape(figure.title)}</h2>
<img alt="{html.escape(figure.title)}" src="data:image/png;base64,{picture}">
{note}
<details><summary>Settings and timings</summary>
<div class="scrolled"><table><thead><tr>{head}</tr></thead><tbody>
{rows}
</tbody></table></div>
<p><a href="figures/{figure.name}.pdf">as PDF</a></p>
</details>
</section>"""


def _rules(results: Results) -> str:
    """The settings in short: each rule with the values that vary within it."""
    shown = {}
    for setting in map(asdict, results.batch.settings):
        shown.setdefault(setting.pop("rule"), []).append(setting)
    texts = []
    for rule, settings in shown.items():
        varying = {
            name: sorted({setting[name] for setting in settings}, reverse=True)
            for name in settings[0]
            if name == "rate" or len({setting[name] for setting in settings}) > 1
        }
        parts = "; ".join(
            f"{name} {', '.join(f'{v:.3g}' for v in values)}" for name, values in varying.items()
        )
        texts.append(f"{rule} ({parts})")
    return ", ".join(texts)
