"""The command `dlrd` as a whole, and in a real shell."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

import dlrd
from dlrd.cli import app

COMMAND = Path(sys.executable).with_name("dlrd")
MODELS = Path(__file__).parent / "command" / "models_to_fit.py"


def test_version_and_help() -> None:
    def stdout(*arguments: str) -> str:
        return CliRunner(env={"COLUMNS": "80"}).invoke(app, arguments).stdout

    assert stdout("--version") == f"dlrd {dlrd.__version__}\n"
    for arguments, expected in [
        (["--help"], ["fit", "show", "runs", "reproduce", "bench", "--install-completion"]),
        (["reproduce", "--help"], ["--scale", "--out", "--seeds"]),
        (["fit", "--help"], ["FILE.PY:NAME", "--dim", "--data", "0 certified or agreed", "130 interrupted"]),
        (["show", "--help"], ["FOLDER", "--var"]),
        (["runs", "--help"], ["LOG", "--last", "--out"]),
    ]:
        printed = stdout(*arguments)
        assert [word for word in expected if word not in printed] == []


def test_the_command_itself_needs_no_numeric_library() -> None:
    """Completion and help answer at once."""
    code = "import dlrd.cli, sys; print([name for name in ('jax', 'numpy') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("dlrd sh", ["show"]),
        ("dlrd fit m.py:f --fam", ["--family"]),
        ("dlrd fit m.py:f --family f", ["full-rank"]),
    ],
)
def test_bash_completes(typed: str, completed: list[str]) -> None:
    """With what `dlrd --show-completion bash` gives, as bash does it when Tab is pressed."""
    words = typed.split()
    script = f"""
eval "$(dlrd --show-completion bash)"
function_name=$(complete -p dlrd | sed 's/.*-F \\([^ ]*\\) .*/\\1/')
COMP_WORDS=({typed})
COMP_CWORD={len(words) - 1}
$function_name dlrd
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    bash = shutil.which("bash")
    assert bash is not None
    environment = os.environ | {"PATH": f"{COMMAND.parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run([bash, "-c", script], capture_output=True, text=True, env=environment)
    assert done.stdout.split() == completed, done.stderr


def test_a_file_that_is_not_there() -> None:
    done = subprocess.run([COMMAND, "fit", "nowhere.py:model"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "Error: there is no file nowhere.py\n"


def test_interrupted_and_called_again(tmp_path: Path) -> None:
    """Ctrl-C gives what there is; the same call goes on from there."""
    call = [COMMAND, "fit", f"{MODELS}:counted", "--draws", "5", "--tolerance", "0.005"]
    process = subprocess.Popen(
        call,
        cwd=tmp_path,
        env=os.environ | {"SECONDS_A_DRAW": "0.004"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not list(tmp_path.glob("fit/checkpoint/**/*.npz")):  # it is under way
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Interrupted by the user" in out
    assert json.loads((tmp_path / "fit" / "summary.json").read_text())["outcome"] == "INTERRUPTED"
    (tmp_path / "evaluated.txt").unlink()
    done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Going on with the fit in fit.\n")
    evaluated = sum(map(int, (tmp_path / "evaluated.txt").read_text().split()))
    summary = json.loads((tmp_path / "fit" / "summary.json").read_text())
    assert summary["outcome"] == "CERTIFIED"
    assert evaluated < summary["num_gradients"]
