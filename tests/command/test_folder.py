"""The folder of a fit: whose it is, and what is in it."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import dlrd
from dlrd.command import folder
from dlrd.command.ends import UserError

SETTINGS = {"model": "a.py:a", "dim": 2, "seed": 0}


def told(path: Path, **changed: object) -> str:
    with pytest.raises(UserError) as caught:
        folder.claim(path, SETTINGS | changed, overwrite=False)
    return str(caught.value)


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A folder with a fit under way."""
    path = tmp_path / "some" / "fit"
    assert not folder.claim(path, SETTINGS, overwrite=False)
    (path / folder.CHECKPOINT).mkdir()
    return path


def test_the_same_fit_goes_on(begun: Path) -> None:
    assert folder.claim(begun, SETTINGS, overwrite=False)


def test_another_fit_is_refused(begun: Path) -> None:
    difference = "(seed was 0, and is 1)"
    assert told(begun, seed=1) == (
        f"{begun} holds another fit {difference}; name another folder with --out, or add --overwrite"
    )


def test_another_fit_is_overwritten(begun: Path) -> None:
    (begun / folder.SUMMARY).write_text("{}")
    (begun / "notes.txt").write_text("mine")
    assert not folder.claim(begun, SETTINGS | {"seed": 1}, overwrite=True)
    assert sorted(path.name for path in begun.iterdir()) == ["notes.txt", folder.SETTINGS]
    assert json.loads((begun / folder.SETTINGS).read_text()) == SETTINGS | {"seed": 1}


def test_a_fit_that_never_began_is_none(tmp_path: Path) -> None:
    """So that a wrong --dim can be put right."""
    assert not folder.claim(tmp_path, SETTINGS | {"dim": 3}, overwrite=False)
    assert not folder.claim(tmp_path, SETTINGS, overwrite=False)


def test_folders_of_others_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("")
    assert told(tmp_path).endswith("has files in it that are no fit's; name another folder with --out")
    with pytest.raises(UserError, match="no fit's"):
        folder.claim(tmp_path, SETTINGS, overwrite=True)
    assert told(tmp_path / "model.py").startswith("--out must name a folder, got the file")


def test_the_files_agree(fitted: Any) -> None:
    import arviz

    with jax.enable_x64(True):
        fit = dlrd.load(fitted.folder / folder.FIT)
        flat = np.asarray(fit.sample(0, 200))
    with np.load(fitted.folder / folder.DRAWS) as draws:
        np.testing.assert_allclose(draws["tau"], np.exp(flat[:, 0]))
        np.testing.assert_allclose(draws["theta"], np.exp(flat[:, 1:]))
        posterior = arviz.from_netcdf(fitted.folder / folder.ARVIZ_DRAWS).posterior
        np.testing.assert_array_equal(posterior["theta"].values[0], draws["theta"])
    summary = json.loads((fitted.folder / folder.SUMMARY).read_text())
    assert (summary["outcome"], summary["elbo"]) == ("CERTIFIED", fit.elbo)
    assert summary["summary"]["names"] == ["tau", *(f"theta[{i}]" for i in range(39))]
    assert "<!doctype html>" in (fitted.folder / folder.REPORT).read_text(encoding="utf-8")


def test_without_arviz(fitted: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All else is written, and a sentence says what is not there."""
    fit = dlrd.load(fitted.folder / folder.FIT)
    (tmp_path / folder.ARVIZ_DRAWS).write_text("of an earlier call")
    monkeypatch.setitem(sys.modules, "arviz", None)
    (sentence,) = folder.write(tmp_path, fit, 0, 10)
    assert sentence.startswith("draws.nc was left out: ")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        set(folder.RESULTS) - {folder.ARVIZ_DRAWS}
    )


def test_what_is_not_known_is_null(fitted: Any, tmp_path: Path) -> None:
    fit = dlrd.load(fitted.folder / folder.FIT)
    assert fit.verdict is not None
    folder.write(tmp_path, replace(fit, verdict=replace(fit.verdict, gap=float("nan"))), 0, 10)

    def refuse(constant: str) -> None:
        raise AssertionError(f"JSON has no {constant}")

    summary = json.loads((tmp_path / folder.SUMMARY).read_text(), parse_constant=refuse)
    assert summary["gap"] is None


def test_folders_without_a_result(begun: Path, tmp_path: Path) -> None:
    for path, sentence in [
        (tmp_path / "nowhere", "there is no folder"),
        (tmp_path, "is not the folder of a fit; name one that dlrd fit has made"),
        (begun, "has no result yet; the same call of dlrd fit goes on with it"),
    ]:
        with pytest.raises(UserError, match=sentence):
            folder.read(path)
    (begun / folder.SUMMARY).write_text("{")
    with pytest.raises(UserError, match=r"summary\.json is not as dlrd wrote it"):
        folder.read(begun)
