"""The small posteriors as PyMC models, with the same coordinates in the same order as the log densities."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm
from pytensor import tensor
from pytensor.scan.basic import scan

from dlrd.bench.posteriors.models import ROWS
from dlrd.paper.problems.logistic import PRIOR_VARIANCE, signed_design

types: Any = tensor


def pymc_model(folder: Path, name: str) -> pm.Model:
    """One of the nine posteriors, or the paper's logistic regression.

    Args:
        folder: with the files of the nine.
        name: of the file, or "logistic".
    """
    with pm.Model() as model:
        if name == "logistic":
            _logistic()
        else:
            data = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))["data"]
            IN_PYMC[name](name, data)
    return model


def _logistic() -> None:
    signed = signed_design()
    beta = pm.Normal("beta", 0, PRIOR_VARIANCE**0.5, shape=signed.shape[1])
    pm.Bernoulli("y", logit_p=signed @ beta, observed=np.ones(len(signed)))


def _kidscore(name: str, data: dict[str, Any]) -> None:
    beta = pm.Flat("beta", shape=3)
    _observed(name, data, beta, pm.HalfCauchy("sigma", 2.5))


def _blr(name: str, data: dict[str, Any]) -> None:
    beta = pm.Normal("beta", 0, 10, shape=data["D"])
    _observed(name, data, beta, pm.HalfNormal("sigma", 10))


def _flat(name: str, data: dict[str, Any]) -> None:
    beta = pm.Flat("beta", shape=ROWS[name](data)[0].shape[1])
    _observed(name, data, beta, pm.HalfFlat("sigma"))


def _autoregression(name: str, data: dict[str, Any]) -> None:
    alpha, beta = pm.Normal("alpha", 0, 10), pm.Normal("beta", 0, 10, shape=data["K"])
    _observed(name, data, types.concatenate([alpha[None], beta]), pm.HalfCauchy("sigma", 2.5))


def _observed(name: str, data: dict[str, Any], beta: Any, sigma: Any) -> None:
    design, response = ROWS[name](data)
    pm.Normal("y", design @ beta, sigma, observed=response)


def _eight_schools(name: str, data: dict[str, Any]) -> None:
    eta = pm.Normal("eta", 0, 1, shape=data["J"])
    mu, tau = pm.Normal("mu", 0, 5), pm.HalfCauchy("tau", 5)
    theta = pm.Deterministic("theta", mu + tau * eta)
    pm.Normal("y", theta, data["sigma"], observed=data["y"])


def _garch(name: str, data: dict[str, Any]) -> None:
    y = np.array(data["y"])
    mu, alpha0, alpha1 = pm.Flat("mu"), pm.HalfFlat("alpha0"), pm.Uniform("alpha1", 0, 1)
    beta1 = pm.Deterministic("beta1", (1 - alpha1) * pm.Uniform("share", 0, 1))
    pm.Potential("beta1 is flat", types.log(1 - alpha1))
    squares = (y - mu) ** 2
    variances: Any = scan(
        lambda given, before, beta1: given + beta1 * before,
        sequences=[alpha0 + alpha1 * squares[:-1]],
        outputs_info=[types.constant(data["sigma1"] ** 2, dtype="float64")],
        non_sequences=[beta1],
        return_updates=False,
    )
    scales = pm.math.sqrt(types.concatenate([[data["sigma1"] ** 2], variances]))
    pm.Normal("y", mu, scales, observed=y)


def _gaussian_process(name: str, data: dict[str, Any]) -> None:
    x, y = np.array(data["x"]), np.array(data["y"])
    rho, alpha, sigma = pm.Gamma("rho", 25, 4), pm.HalfNormal("alpha", 2), pm.HalfNormal("sigma", 1)
    correlations = pm.math.exp(-0.5 * (x[:, None] - x) ** 2 / rho**2)
    pm.MvNormal("y", np.zeros(len(x)), alpha**2 * correlations + sigma * np.eye(len(x)), observed=y)


IN_PYMC: dict[str, Callable[[str, dict[str, Any]], None]] = {
    "kidiq-kidscore_momhsiq": _kidscore,
    "sblrc-blr": _blr,
    "nes1996-nes": _flat,
    "eight_schools-eight_schools_noncentered": _eight_schools,
    "garch-garch11": _garch,
    "gp_pois_regr-gp_regr": _gaussian_process,
    "arK-arK": _autoregression,
    "earnings-logearn_interaction": _flat,
    "mesquite-logmesquite_logvash": _flat,
}
"""From the name of a file to what writes the model of its data down."""
