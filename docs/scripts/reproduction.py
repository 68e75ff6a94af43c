"""Puts a finished `dlrd reproduce` into the documentation: python docs/scripts/reproduction.py FOLDER"""

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from dlrd.paper.experiments.batch import read_results
from dlrd.paper.experiments.spec import FIGURES, Scale

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

## Beyond the paper

Does the rule help other families too? The final Kullback–Leibler divergence to the target, static against
DLRD (the mixture contains its target, so that the noise of the gradients vanishes there; the flow does not):

| family | η₀ | static | DLRD |
|---|---|---|---|
{beyond}
"""


def main(folder: Path) -> None:
    claims = json.loads((folder / "claims.json").read_text(encoding="utf-8"))
    facts = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    (HERE / "figures").mkdir(parents=True, exist_ok=True)
    for figure in FIGURES:
        for suffix in ("png", "pdf"):
            shutil.copy(folder / "figures" / f"{figure.name}.{suffix}", HERE / "figures")
    for name in ("claims.json", "run.json"):
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
    )
    (HERE / "index.md").write_text(text, encoding="utf-8")


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
    return f"| {verdict} | {claim['paper']} `{claim['name']}` | {claim['measured']} |"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
