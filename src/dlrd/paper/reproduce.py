"""`dlrd reproduce`: runs what has no results yet, draws the figures, checks the claims, writes the page."""

import datetime
import importlib.metadata
import json
import platform
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dlrd.paper import claims as paper_claims
from dlrd.paper.claims import Claim
from dlrd.paper.experiments.batch import Results, read_results
from dlrd.paper.experiments.pool import run_all, usable_cores
from dlrd.paper.experiments.spec import FIGURES, Batch, Figure, Scale, batches_of
from dlrd.paper.figures import draw
from dlrd.paper.guarded import false_alarms, shares
from dlrd.paper.page import Facts, reproduction_page

if TYPE_CHECKING:
    from dlrd.paper.why import Finding

_PACKAGES = ("dlrd", "jax", "optax", "equinox", "numpy", "scipy", "numba", "scikit-learn", "flowjax")


def reproduce(names: list[str], scale: Scale, folder: Path, num_seeds: int | None) -> list[Claim]:
    """Makes the named figures, or all, in `folder`; what an earlier call has finished is not run again.

    Returns:
        The claims that could be checked, also in `folder`/claims.json.
    """
    figures = chosen_figures(names)
    batches = batches_of(figures, scale, num_seeds)
    missing = [batch for batch in batches if _results(batch, folder) is None]
    started = time.perf_counter()
    if missing:
        run_all(missing, folder / "runs")
    facts = _facts(folder, scale, time.perf_counter() - started if missing else 0.0)
    found: dict[str, Results] = {}
    for batch in batches:
        results = _results(batch, folder)
        assert results is not None
        found[batch.name] = results
    for figure in figures:
        draw(figure.name, {batch.name: found[batch.name] for batch in figure.batches}, folder / "figures")
    claims = [_explained(claim, folder / "why.json") for claim in paper_claims.evaluate(found)]
    _write_json(folder / "claims.json", [asdict(claim) for claim in claims])
    num_runs, resets = false_alarms(found)
    counted = {"runs": num_runs, "resets": resets, "shares": [asdict(row) for row in shares(found)]}
    _write_json(folder / "guard.json", counted)
    page = reproduction_page(list(figures), found, claims, facts, folder)
    (folder / "index.html").write_text(page, encoding="utf-8")
    return claims


def explain(folder: Path) -> "list[Finding]":
    """Runs the experiments on the checks that do not hold; what they find is in `folder`/why.json, too."""
    from dlrd.paper.why import EXPERIMENTS

    findings = [experiment(folder / "runs") for experiment in EXPERIMENTS]
    _write_json(folder / "why.json", [finding._asdict() for finding in findings])
    return findings


def _explained(claim: Claim, path: Path) -> Claim:
    """The claim with what was found about it, if it does not hold and there is something."""
    if claim.holds or not path.exists():
        return claim
    findings = json.loads(path.read_text(encoding="utf-8"))
    answers = [f"{each['question']} {each['answer']}" for each in findings if claim.name in each["checks"]]
    return replace(claim, why=" ".join(answers))


def chosen_figures(names: list[str]) -> tuple[Figure, ...]:
    """The figures of these names, in the paper's order; all if there are none."""
    known = [figure.name for figure in FIGURES]
    for name in names:
        if name not in known:
            raise ValueError(f"figure must be one of {', '.join(known)}; got {name}")
    return tuple(figure for figure in FIGURES if not names or figure.name in names)


def _results(batch: Batch, folder: Path) -> Results | None:
    return read_results(folder / "runs" / f"{batch.name}.npz", batch)


def _facts(folder: Path, scale: Scale, seconds: float) -> Facts:
    """How the run was made; the time is added up over all calls that had something to run."""
    path = folder / "run.json"
    facts = Facts(
        scale=scale,
        date=datetime.date.today().isoformat(),
        versions={name: importlib.metadata.version(name) for name in _PACKAGES},
        machine=f"{len(usable_cores())} cores, {platform.machine()}",
        wall_seconds=seconds,
    )
    if path.exists():
        before = json.loads(path.read_text(encoding="utf-8"))
        if before["scale"] == scale:
            if not seconds:
                return Facts(**before)
            facts = replace(facts, wall_seconds=before["wall_seconds"] + seconds)
    _write_json(path, asdict(facts))
    return facts


def _write_json(path: Path, data: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
