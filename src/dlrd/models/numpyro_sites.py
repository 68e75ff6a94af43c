"""What a NumPyro model consists of: its sites, their axes and its data, looked at by running it."""

import importlib.util
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Key
from numpyro import handlers
from numpyro.distributions import constraints, transforms
from numpyro.infer import init_to_uniform

Site = dict[str, Any]
"""As NumPyro records it."""
WORDS = {
    transforms.IdentityTransform: None,
    transforms.ExpTransform: "log",
    transforms.SigmoidTransform: "logit",
}
"""What takes a variable to its unconstrained coordinates, by the transform that leads back."""


class Sites(NamedTuple):
    """The sites of a model, by what does not change from run to run."""

    shapes: dict[str, tuple[int, ...]]  # of all that have a value
    latent: dict[str, str | None]  # what is fitted, with the word for the way to its coordinates
    discrete: tuple[str, ...]  # what NumPyro sums over
    observed: tuple[str, ...]
    deterministic: tuple[str, ...]
    dims: dict[str, tuple[str, ...]]  # of variables and data that are in a plate
    coords: dict[str, np.ndarray]
    decentrings: dict[str, str]  # of sites with a location and a scale, as code

    @property
    def variables(self) -> list[str]:
        return [*self.latent, *self.deterministic]


class Values(NamedTuple):
    """What the sites hold in one run."""

    observed: dict[str, Any]
    params: dict[str, Any]  # of param sites, which stay as they are
    scales: dict[str, Any]  # of the sites that could be decentred


def find_sites(model: Callable[..., Any], *data: Any) -> tuple[Sites, Values]:
    """The sites of a model of some data, as `Survey` finds them."""
    return Survey(model)(*data)


class Survey:
    """Finds the sites of a model, once it is sure that it can be fitted; decentrings only of hierarchies.

    Nothing but the data and the scales is computed, and all of it compiled: run step by step, a model
    takes seconds. For other data of the same shapes it is not compiled again.

    Args:
        model: a function of its data, all else bound.
    """

    def __init__(self, model: Callable[..., Any]):
        self._model = model
        self._found: list[Sites] = []
        self._program = jax.jit(self._run)

    def __call__(self, *data: Any) -> tuple[Sites, Values]:
        is_new = not self._found
        try:
            first, second = (self._program(jax.random.key(seed), *data) for seed in (0, 1))
            if is_new:
                # Runs the user's code again.
                jax.eval_shape(lambda key, *data: self._run(key, *data), jax.random.key(0), *data)
        except (ImportError, ValueError) as error:
            error.__notes__ = []  # on jax, which the user has not called
            raise
        _check_same(self._found[0], self._found[-1])
        # The scale of a site in a hierarchy comes from another site, and differs from run to run.
        decentrings = {
            name: code
            for name, code in self._found[0].decentrings.items()
            if not np.array_equal(first.scales[name], second.scales[name])
        }
        return self._found[0]._replace(decentrings=decentrings), first

    def _run(self, key: Key[Array, ""], *data: Any) -> Values:
        trace = _trace(lambda: self._model(*data), key)
        sites = _described(trace)
        self._found.append(sites)
        return Values(
            observed={name: trace[name]["value"] for name in sites.observed},
            params={name: site["value"] for name, site in trace.items() if site["type"] == "param"},
            scales={name: _base(trace[name]["fn"]).scale for name in sites.decentrings},
        )


def in_a_sentence(error: Exception) -> str:
    """What an error says, without what follows its first line."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}".rstrip(" .")


def _trace(model: Callable[[], Any], key: Key[Array, ""]) -> dict[str, Site]:
    started = handlers.substitute(handlers.seed(model, key), substitute_fn=init_to_uniform())
    with handlers.trace() as trace:
        try:
            started()
        except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError) as error:
            raise ValueError(
                "the model must run the same way, with the same shapes, whatever the values of its sites, so "
                f"that jax can compile it, and this one does not{_after(trace)}: {in_a_sentence(error)}"
            ) from error
        except Exception as error:  # of any kind: it is the user's code that fails here
            raise ValueError(
                "the model must run with the arguments that are given, and it "
                f"fails{_after(trace)}: {in_a_sentence(error)}"
            ) from error
    return dict(trace)


def _after(trace: Mapping[str, Site]) -> str:
    return f" after site {list(trace)[-1]!r}" if trace else ""


def _described(trace: Mapping[str, Site]) -> Sites:
    _check_plates(trace)
    samples = {name: site for name, site in trace.items() if site["type"] == "sample"}
    # What `numpyro.factor` adds to the log density is no data.
    observed = {
        name: site
        for name, site in samples.items()
        if site["is_observed"] and not isinstance(site["fn"], dist.Unit)
    }
    free = {name: site for name, site in samples.items() if not site["is_observed"]}
    discrete = tuple(name for name, site in free.items() if site["fn"].support.is_discrete)
    latent = {name: site for name, site in free.items() if name not in discrete}
    for name, site in observed.items():
        _check_data(name, site)
    for name in discrete:
        _check_enumerable(name, free[name])
    if not latent:
        raise ValueError("the model must have a continuous latent site to fit, and it has none")
    deterministic = tuple(name for name, site in trace.items() if site["type"] == "deterministic")
    labelled = (*latent, *deterministic, *observed)
    dims = {name: axes for name in labelled if (axes := _axes(name, trace[name]))}
    plates = {axis for axes in dims.values() for axis in axes}
    return Sites(
        shapes={name: jnp.shape(site["value"]) for name, site in trace.items() if site["type"] != "plate"},
        latent={name: _transform_word(site) for name, site in latent.items()},
        discrete=discrete,
        observed=tuple(observed),
        deterministic=deterministic,
        dims=dims,
        coords={
            name: np.arange(site["args"][0])
            for name, site in trace.items()
            if site["type"] == "plate" and name in plates
        },
        decentrings={name: code for name, site in latent.items() if (code := _decentring(site))},
    )


def _transform_word(site: Site) -> str | None:
    """The word for the way from a variable to its coordinates, None where these are the same."""
    transform = transforms.biject_to(site["fn"].support)
    while isinstance(transform, transforms.IndependentTransform):
        transform = transform.base_transform
    return WORDS.get(type(transform), "free")


def _check_same(first: Sites, second: Sites) -> None:
    for name in {**first.shapes, **second.shapes}:
        shapes = [each.shapes.get(name) for each in (first, second)]
        if None in shapes:
            raise ValueError(
                f"a model must have the same sites in every run, and {name!r} is in one and not in another"
            )
        if shapes[0] != shapes[1]:
            raise ValueError(
                f"a site must have the same shape in every run of the model, and {name!r} has shape "
                f"{shapes[0]} in one run and {shapes[1]} in another"
            )


def _check_plates(trace: Mapping[str, Site]) -> None:
    for name, site in trace.items():
        if site["type"] == "plate":
            size, part = site["args"]
            if part not in (None, size):
                raise ValueError(
                    f"plates must be whole, and {name!r} takes {part} of {size} at a time: leave out its "
                    "subsample_size"
                )


def _check_data(name: str, site: Site) -> None:
    given, expected = jnp.shape(site["value"]), site["fn"].shape()
    try:
        jnp.broadcast_shapes(given, expected)
    except ValueError:
        raise ValueError(
            f"the data of a site must fit its distribution, and those of {name!r} have shape {given} where "
            f"the model gives {expected}"
        ) from None


def _check_enumerable(name: str, site: Site) -> None:
    if not site["fn"].has_enumerate_support:
        raise ValueError(
            f"latent sites must be continuous, or discrete with few values, and {name!r} is a "
            f"{type(_base(site['fn'])).__name__}: sum over it by hand, or hand over its data if it has any"
        )
    if importlib.util.find_spec("funsor") is None:
        raise ImportError(
            f"the discrete site {name!r} is summed over by NumPyro with funsor, which is not installed: "
            "pip install funsor",
            name="funsor",
        )


def _axes(name: str, site: Site) -> tuple[str, ...]:
    """The names of a site's axes, those of plates by the plate; none if no plate is among them."""
    shape, frames = jnp.shape(site["value"]), site["cond_indep_stack"]
    # A deterministic site does not say how many of its axes are right of the plates: the sizes do.
    event_dims = [site["fn"].event_dim] if site["type"] == "sample" else range(len(shape))
    for event_dim in event_dims:
        plates = {frame.dim - event_dim: frame for frame in frames}
        if plates and all(-at <= len(shape) and shape[at] == plate.size for at, plate in plates.items()):
            at = range(-len(shape), 0)
            return tuple(plates[i].name if i in plates else f"{name}_dim_{i + len(shape)}" for i in at)
    return ()


def _base(fn: Any) -> Any:
    """The distribution without what only changes its shape."""
    while isinstance(fn, (dist.Independent, dist.ExpandedDistribution)):
        fn = fn.base_dist
    return fn


def _decentring(site: Site) -> str | None:
    """The reparameterisation that decentres a site, if it has a location and a scale."""
    base = _base(site["fn"])
    others = set(base.arg_constraints) - {"loc", "scale"}
    is_loc_scale = base.support is constraints.real and len(others) == len(base.arg_constraints) - 2
    if not is_loc_scale or "_scan_current_index" in site["infer"]:  # handlers do not reach into a scan
        return None
    return f"LocScaleReparam(0, shape_params={sorted(others)})" if others else "LocScaleReparam(0)"
