"""Puts a finished `dlrd reproduce` into the documentation: python docs/scripts/reproduction.py FOLDER"""

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from dlrd.paper.experiments.batch import read_results
from dlrd.paper.experiments.spec import FIGURES, Scale
from dlrd.paper.guarded import in_words

HERE = Path(__file__).resolve().parents[1] / "reproduction"
PAGE = """# The paper, reproduced

All figures of the paper from scratch and every claim that it makes in words, checked:
`dlrd reproduce --scale {scale}` (it needs the extra `paper`), run on {date} in {minutes:.1f} minutes on
{machine}; {versions}.
Also as [one page](page.html) with settings and timings; the checks are [data](claims.json), too.
`make reproduce` sets everything up and runs a quick version in a few minutes.

## The claims

{num_holding} of {num_claims} checks hold. All are medians over seeds (5 for the synthetic problem, 1 for the
others); what is called final is the median over the last twentieth of the recorded points.

| verdict | the paper says | measured |
|---|---|---|
{rows}

## The figures

{pictures}

## The guard against divergence

{guard}

## Beyond the paper

Does the rule help other families too? The final Kullback–Leibler divergence to the target, static against
DLRD (the mixture contains its target, so that the noise of the gradients vanishes there; the flow does not):

| family | η₀ | static | DLRD |
|---|---|---|---|
{beyond}

The automatic mode, `dlrd.fit` without an optimiser, does not use the rule for these families. It takes
[rounds](../automatic.md#mixtures-and-flows), in each of which the rate falls to zero, and every next one is
twice as long. It ends as `AGREED` when a longer round no longer raises the ELBO, or else with its budget. How
that compares with Adam at the best of four rates and with a schedule, on six targets:
[flows and mixtures](../benchmarks.md#flows-and-mixtures).
"""


def main(folder: Path) -> None:
    claims = json.loads((folder / "claims.json").read_text(encoding="utf-8"))
    facts = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    (HERE / "figures").mkdir(parents=True, exist_ok=True)
    for figure in FIGURES:
        for suffix in ("png", "pdf"):
            shutil.copy(folder / "figures" / f"{figure.name}.{suffix}", HERE / "figures")
    for name in ("claims.json", "run.json", "guard.json", "why.json"):
        if (folder / name).exists():
            shutil.copy(folder / name, HERE)
    shutil.copy(folder / "index.html", HERE / "page.html")
    pictures = [
        f"### {figure.title}\n\n![{figure.title}](figures/{figure.name}.png)\n\n{figure.note}".rstrip()
        for figure in FIGURES
    ]
    text = PAGE.format(
        scale=facts["scale"],
        date=facts["date"],
        minutes=facts["wall_seconds"] / 60,
        machine=facts["machine"],
        versions=", ".join(f"{name} {version}" for name, version in facts["versions"].items()),
        num_holding=sum(claim["holds"] for claim in claims),
        num_claims=len(claims),
        rows="\n".join(map(row, claims)),
        pictures="\n\n".join(pictures),
        beyond="\n".join(beyond_rows(folder, facts["scale"])),
        guard=guard_text(folder),
    )
    (HERE / "index.md").write_text(text, encoding="utf-8")


def guard_text(folder: Path) -> str:
    """False alarms, and what the guard gained where rates were far too large."""
    counted = json.loads((folder / "guard.json").read_text(encoding="utf-8"))
    rows = [
        f"| {row['problem']}, {row['optimizer']} | {row['alone']} of {row['num_runs']} | "
        f"{row['guarded']} of {row['num_runs']} | {row['num_lost_alone']} | {row['num_lost_guarded']} |"
        for row in counted["shares"]
    ]
    runs, resets = counted["runs"], in_words(counted["resets"])
    return f"""{runs:,} runs, all of the paper's and those on the rule's constants and on other
families, had the [guard](../guard.md) on. It went back: {resets}.
With the rule from rates of 1e-3 to 1e3, runs that end within a factor of two of the best rate's median, and
runs that are lost (more than a thousand times as far off, or not finite):

| problem, optimiser | near, alone | near, with the guard | lost, alone | lost, with the guard |
|---|---|---|---|---|
{chr(10).join(rows)}"""


def beyond_rows(folder: Path, scale: Scale) -> Iterator[str]:
    (families,) = [figure for figure in FIGURES if figure.name == "families"]
    for batch in families.batches:
        results = read_results(folder / "runs" / f"{batch.name}.npz", batch.at(scale, None))
        assert results is not None
        for rate in sorted({setting.rate for setting in batch.settings}, reverse=True):
            static, dlrd = (results.final(rule=rule, rate=rate) for rule in ("static", "dlrd"))
            yield f"| {batch.problem} | {rate:g} | {static:.1e} | {dlrd:.1e} |"


def row(claim: dict) -> str:
    verdict = "holds" if claim["holds"] else "**does not hold**"
    why = f" *{claim['why']}*" if claim.get("why") else ""
    return f"| {verdict} | {claim['paper']} `{claim['name']}` | {claim['measured']}{why} |"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
