"""Emulators: the density of polynomial outputs, and what it misses."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dlrd.models import Audited, Emulable
from dlrd.models.emulator import AuditedEmulator, Emulator
from dlrd.models.polynomial import tangent

sys.path.insert(0, str(Path(__file__).parent))
from toy_emulable import ToyEmulable, decay

pytestmark = pytest.mark.usefixtures("x64")
POINT = np.array([0.4, -0.3, 0.2])


def both(model: ToyEmulable) -> tuple[Emulator, AuditedEmulator]:
    linear = tangent(np.asarray(POINT), np.asarray(decay(POINT)), np.asarray(jax.jacobian(decay)(POINT)).T)
    return Emulator(model, linear), AuditedEmulator(model, linear)


def test_an_emulator_is_its_model_with_other_outputs() -> None:
    model = ToyEmulable()
    emulator, _ = both(model)
    assert isinstance(model, Emulable)
    assert (emulator.dim, emulator.names) == (3, model.names)
    np.testing.assert_allclose(emulator.log_density(POINT), model.log_density(POINT), rtol=1e-12)
    shifted = POINT + 0.1
    outputs = decay(POINT) + jax.jacobian(decay)(POINT) @ (shifted - POINT)
    expected = model.log_density_of(outputs, shifted)
    np.testing.assert_allclose(emulator.log_density(shifted), expected, rtol=1e-12)


def test_programs_of_one_model_are_shared_whatever_was_learnt() -> None:
    model = ToyEmulable()
    first, other = (
        Emulator(model, tangent(np.zeros(3), np.full(20, i), np.ones((3, 20)))) for i in (0.0, 1.0)
    )
    assert jax.tree.structure(first) == jax.tree.structure(other)
    assert jax.tree.structure(first) != jax.tree.structure(both(model)[1])


def test_an_audit_tells_what_is_missed() -> None:
    model = ToyEmulable(fails=lambda z: z[0] > 1.0)
    emulator, audited = both(model)
    draws = POINT + jnp.array([[0.0, 0.0, 0.0], [0.2, -0.1, 0.3], [2.0, 0.0, 0.0]])
    seen = audited.audit(draws)
    assert isinstance(audited, Audited)
    exact = jax.vmap(model.log_density)(draws[:2])
    np.testing.assert_allclose(seen.values[:2], exact, rtol=1e-12)
    np.testing.assert_allclose(
        seen.residuals[:2], exact - jax.vmap(emulator.log_density)(draws[:2]), atol=1e-9
    )
    assert np.isnan(seen.values[2])
    assert np.isnan(seen.residuals[2])
    np.testing.assert_array_equal(seen.outputs[1], decay(draws[1]))
    np.testing.assert_array_equal(audited.values(draws, None), seen.values)
