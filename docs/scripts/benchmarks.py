"""Puts finished parts of `dlrd bench` into the documentation: python docs/scripts/benchmarks.py FOLDER

In `benchmarks.md` each table stands between two comments, `<!-- table: PART -->` and `<!-- end -->`. PART is
a folder in FOLDER: `posteriors`, or `fine/posteriors` from a run with `--out FOLDER/fine`. `PART.KEY` names
another table of its results.
"""

import json
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from dlrd.bench import ablation, budgets, nuts, scaling, shapes
from dlrd.bench.models import compare as models
from dlrd.bench.peers import compare
from dlrd.bench.posteriors import accuracy
from dlrd.bench.seconds import compare as seconds
from dlrd.bench.table import Column, Row, shown

HERE = Path(__file__).resolve().parents[1]
TABLE = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
COLUMNS = {
    "posteriors": accuracy.COLUMNS,
    "posteriors.overall": accuracy.OVERALL_COLUMNS,
    "ablation": ablation.COLUMNS,
    "peers": compare.COLUMNS,
    "budgets": budgets.COLUMNS,
    "models": models.COLUMNS,
    "nuts": nuts.COLUMNS,
    "seconds": seconds.COLUMNS,
    "seconds.overall": seconds.OVERALL_COLUMNS,
    "scaling": scaling.COLUMNS,
    "shapes": shapes.COLUMNS,
    "shapes.overall": shapes.OVERALL_COLUMNS,
    "scaling.exponents": scaling.EXPONENT_COLUMNS,
}


def main(folder: Path) -> None:
    (HERE / "benchmarks").mkdir(exist_ok=True)
    page = HERE / "benchmarks.md"
    text = TABLE.sub(lambda found: filled(folder, found), page.read_text(encoding="utf-8"))
    page.write_text(text, encoding="utf-8")
    for results in folder.rglob("results.json"):
        name = "-".join(results.parent.relative_to(folder).parts)
        shutil.copy(results, HERE / "benchmarks" / f"{name}.json")
        shutil.copy(results.with_name("figure.png"), HERE / "benchmarks" / f"{name}.png")


def filled(folder: Path, found: re.Match[str]) -> str:
    """The table between its comments, as it was if FOLDER has no results for it."""
    part, _, key = found[2].partition(".")
    results = folder / part / "results.json"
    if not results.exists():
        return found[0]
    data = json.loads(results.read_text(encoding="utf-8"))
    rows = data[key or ("summary" if "summary" in data else "rows")]
    filling = markdown(COLUMNS[found[2].rpartition("/")[2]], rows)
    return f"{found[1]}\n{filling}\n{found[3]}"


def markdown(columns: Sequence[Column], rows: Sequence[Row]) -> str:
    lines = [
        [column.heading for column in columns],
        ["---:" if column.form else "---" for column in columns],
        *([shown(row[column.key], column.form) for column in columns] for row in rows),
    ]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
