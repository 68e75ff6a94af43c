"""The folder of a fit: what it holds, whose it is, and what can be read from it without the model."""

import json
import math
import shutil
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from dlrd.command.ends import UserError
from dlrd.fitting import Fit
from dlrd.fitting.labels import as_variables
from dlrd.fitting.summary import Summary

CHECKPOINT, SETTINGS, SUMMARY = "checkpoint", "settings.json", "summary.json"
FIT, DRAWS, ARVIZ_DRAWS, REPORT = "fit.dlrd", "draws.npz", "draws.nc", "report.html"
RESULTS = (FIT, DRAWS, ARVIZ_DRAWS, REPORT, SUMMARY)


def claim(folder: Path, settings: dict[str, Any], overwrite: bool) -> bool:
    """Makes the folder that of this fit, once it is sure that it is no other's.

    Args:
        folder: new, empty, or of an earlier call.
        settings: what makes this fit another than others, by the names of the options.
        overwrite: whether an earlier fit may be thrown away.

    Returns:
        Whether an earlier call has left something to go on from.
    """
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--out must name a folder, got the file {folder}")
    has_fit = any((folder / name).exists() for name in (*RESULTS, CHECKPOINT))
    earlier = _read(folder / SETTINGS)
    if earlier is None and folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder} has files in it that are no fit's; name another folder with --out")
    if overwrite:
        for name in RESULTS:
            (folder / name).unlink(missing_ok=True)
        shutil.rmtree(folder / CHECKPOINT, ignore_errors=True)
    elif earlier is not None and has_fit:
        for name, now in settings.items():
            if now != earlier.get(name):
                raise another_fit(folder, f"{name} was {earlier.get(name)}, and is {now}")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SETTINGS).write_text(_as_json(settings), encoding="utf-8")
    return (folder / CHECKPOINT).exists()


def another_fit(folder: Path, difference: str) -> UserError:
    """The error for a folder that an earlier call has filled, with what is different now."""
    return UserError(
        f"{folder} holds another fit ({difference}); name another folder with --out, or add --overwrite"
    )


def write(folder: Path, fit: Fit, key: int, num: int) -> list[str]:
    """Writes all that is known of a fit.

    Args:
        folder: its own.
        fit: with its model.
        key: of the draws.
        num: how many draws.

    Returns:
        A sentence for each file that was left out.
    """
    fit.save(folder / FIT)
    np.savez(folder / DRAWS, allow_pickle=False, **as_variables(fit.sample(key, num), fit.names))
    left_out = _write_arviz(folder / ARVIZ_DRAWS, fit, key, num)
    fit.report(folder / REPORT)
    # The last, so that a folder with a summary has everything.
    (folder / SUMMARY).write_text(_as_json(_described(fit)), encoding="utf-8")
    return left_out


def _write_arviz(path: Path, fit: Fit, key: int, num: int) -> list[str]:
    path.unlink(missing_ok=True)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"\s*ArviZ is undergoing", FutureWarning)
            fit.to_arviz(key, num).to_netcdf(path)
    except (ImportError, ValueError) as error:  # netCDF takes not all names
        path.unlink(missing_ok=True)
        return [f"{path.name} was left out: {error}"]
    return []


def _described(fit: Fit) -> dict[str, Any]:
    """A fit in plain numbers and words."""
    verdict = fit.verdict
    assert verdict is not None
    return {
        "outcome": fit.outcome.name,
        "family": type(fit.family).__name__,
        "elbo": fit.elbo,
        "elbo_error": fit.elbo_error,
        "gap": verdict.gap,
        "gap_error": verdict.gap_error,
        "tolerance": verdict.tolerance,
        "tail_shape": verdict.tail_shape,
        "num_gradients": verdict.num_gradients,
        "seconds": fit.seconds,
        "warnings": verdict.warnings,
        "summary": asdict(fit.summary()),
    }


def _as_json(fields: dict[str, Any]) -> str:
    """A field a line."""
    lines = [f"  {json.dumps(name)}: {json.dumps(_plain(value))}" for name, value in fields.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _plain(value: Any) -> Any:
    """A value as JSON has it, which knows no nan: null."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_plain(each) for each in (value.tolist() if isinstance(value, np.ndarray) else value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read(folder: Path) -> Summary:
    """The summary of the fit in a folder, on the scale of the model's variables."""
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}")
    if _read(folder / SETTINGS) is None:
        raise UserError(f"{folder} is not the folder of a fit; name one that dlrd fit has made")
    described = _read(folder / SUMMARY)
    if described is None:
        raise UserError(f"the fit in {folder} has no result yet; the same call of dlrd fit goes on with it")
    saved = described["summary"]
    numbers = {name: np.array(saved[name], float) for name in ("mean", "std", "quantiles")}
    shapes = {name: tuple(shape) for name, shape in saved["shapes"].items()}
    return Summary(**saved | numbers | {"shapes": shapes})


def _read(path: Path) -> dict[str, Any] | None:
    """What a file holds, or None if there is no such file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise UserError(f"{path} is not as dlrd wrote it; delete it, or name another folder") from error
