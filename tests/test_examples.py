"""The examples, each run as a user runs it, on a small setting."""

import pathlib
import subprocess
import sys

import pytest

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


@pytest.mark.slow
def test_shell_model(tmp_path: pathlib.Path) -> None:
    """The lines at the head of the file, as they stand there."""
    command = pathlib.Path(sys.executable).with_name("dlrd")
    lines = [line for line in (EXAMPLES / "shell_model.py").read_text().splitlines() if "    dlrd " in line]
    assert len(lines) == 3
    (tmp_path / "examples").symlink_to(EXAMPLES)
    printed = []
    for line in lines:
        budget = ["--max-gradients", "600", "--draws", "20"] if " fit " in line else []
        done = subprocess.run(
            [command, *line.split()[1:], *budget], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode in (0, 3), done.stderr
        printed.append(done.stdout)
    assert "theta[7]" in printed[0]
    assert "z[9]" in printed[1]
    assert [line.split()[0] for line in printed[2].splitlines()[1:3]] == ["mu", "tau"]
    assert (tmp_path / "schools" / "report.html").exists()


@pytest.mark.slow
def test_nuts_from_fit(tmp_path: pathlib.Path) -> None:
    settings = ("--draws", "20", "--warmup", "50", "--short-warmup", "10")
    printed = run("nuts_from_fit.py", *settings, folder=tmp_path)
    assert "CERTIFIED" in printed
    rows = [line.split() for line in printed.splitlines() if line.startswith(("NumPyro", "BlackJAX"))]
    assert [row[0] for row in rows] == ["NumPyro", "NumPyro", "BlackJAX", "BlackJAX"]
    gradients = [int(row[-3].replace(",", "")) for row in rows]
    assert gradients[1] < gradients[0]
    assert gradients[3] < gradients[2]


@pytest.mark.slow
def test_numpyro_schools(tmp_path: pathlib.Path) -> None:
    printed = run("numpyro_schools.py", "--max-gradients", "2000", "--draws", "50", folder=tmp_path)
    assert 'numpyro.handlers.reparam(model, config={"theta": LocScaleReparam(0)})' in printed
    assert "theta[7]" in printed
    assert "New data above the observed:" in printed
    assert "sds from that of NUTS." in printed
    assert (tmp_path / "demo" / "schools.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_pymc_schools(tmp_path: pathlib.Path) -> None:
    printed = run("pymc_schools.py", "--max-gradients", "5000", folder=tmp_path)
    assert "theta[H]" in printed
    assert "New data above the observed: " in printed
    assert (tmp_path / "demo" / "schools.png").read_bytes().startswith(b"\x89PNG")


def test_torch_loop(tmp_path: pathlib.Path) -> None:
    printed = run("torch_loop.py", "--steps", "500", folder=tmp_path)
    losses = dict(line.split(": loss ") for line in printed.splitlines()[:-1])
    assert len(losses) == 6
    excess = {name: float(words.split()[0]) for name, words in losses.items()}
    assert excess["0.1, with the rule"] < excess["0.1, fixed"]
    assert (tmp_path / "demo" / "torch_loop.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_rod(tmp_path: pathlib.Path) -> None:
    """A program in C, compiled and calibrated."""
    printed = run("rod.py", "--max-gradients", "60", "--draws", "4", folder=tmp_path)
    assert "diffusivity" in printed
    assert "Gradients: of a polynomial that is learnt from the runs; what it misses, from values." in printed
    assert (tmp_path / "demo" / "rod.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_pyro_svi(tmp_path: pathlib.Path) -> None:
    printed = run("pyro_svi.py", "--steps", "1000", folder=tmp_path)
    fixed, lowered = (float(line.split()[-1]) for line in printed.splitlines()[:2])
    assert lowered > fixed
    assert "a rate of 0.1, lowered" in printed
    assert "The common mean: " in printed
