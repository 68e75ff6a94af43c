"""The examples, each run as a user runs it, on a small setting."""

import pathlib
import subprocess
import sys

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"


def run(name: str, *arguments: str, folder: pathlib.Path) -> str:
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, *arguments], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_breast_cancer(tmp_path: pathlib.Path) -> None:
    printed = run("breast_cancer.py", "--max-gradients", "3000", folder=tmp_path)
    assert "gradients" in printed
    assert "worst fractal dimension" in printed
    assert "of the 569 training cases correctly." in printed
    assert "Wrote demo/fit.png and demo/fit.html." in printed
    assert (tmp_path / "demo" / "fit.png").read_bytes().startswith(b"\x89PNG")
    assert "FullRankNormal" in (tmp_path / "demo" / "fit.html").read_text(encoding="utf-8")
