"""What is asked of PyMC beyond its public names."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from dlrd.models import _pymc


def test_shapes_are_known_unless_they_are_random() -> None:
    length = pm.Uniform.dist(1, 9)
    repeated = pt.repeat(pm.Normal.dist(shape=2), np.array([1, 2]))
    assert _pymc.shape_of(pm.Normal.dist(shape=(2, 3))) == (2, 3)
    assert _pymc.shape_of(pm.AR.dist(rho=[0.5], init_dist=pm.Normal.dist(), steps=4)) == (5,)
    assert _pymc.shape_of(pm.Normal.dist(shape=pt.cast(length, "int64"))) is None
    assert repeated.type.shape == (None,)


def test_a_frozen_copy_has_fixed_lengths() -> None:
    with pm.Model(coords={"row": [1, 2]}) as model:
        pm.Data("x", [1.0, 2.0], dims="row")
        pm.Normal("y", dims="row")
    assert model["y"].type.shape == (None,)
    assert _pymc.frozen(model)["y"].type.shape == (2,)
