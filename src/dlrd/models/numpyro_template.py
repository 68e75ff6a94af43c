"""What NumPyro models of one function have in common, whatever the numbers of their data."""

import functools
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpyro import handlers
from numpyro.infer import initialize_model

from dlrd.models.numpyro_sites import Sites, Survey, Values, in_a_sentence


class Template:
    """What NumPyro models of other data have in common; equal to others of the same function and shapes.

    Args:
        model: a function with NumPyro's primitives.
        form: of its arguments.
        leaves: of these; data stand for their shapes.
        are_data: which of them are.
    """

    def __init__(self, model: Callable[..., Any], form: Any, leaves: list[Any], are_data: list[bool]):
        self.model = model
        self._form, self._are_data = form, tuple(are_data)
        self._others = [None if own else leaf for leaf, own in zip(leaves, are_data, strict=True)]
        # What jax traces of a model holds numbers of the precision of now, and is of no use in another.
        kinds = (
            (np.shape(leaf), leaf.dtype) if own else fingerprint(leaf)
            for leaf, own in zip(leaves, are_data, strict=True)
        )
        self._content = model, form, self._are_data, tuple(kinds), jnp.zeros(()).dtype

    def arguments(self, data: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What the model is called with."""
        rest = iter(data)
        pairs = zip(self._others, self._are_data, strict=True)
        return self._form.unflatten([next(rest) if own else leaf for leaf, own in pairs])

    def run(self, *data: Any) -> Any:
        """The model with these data."""
        args, kwargs = self.arguments(data)
        return self.model(*args, **kwargs)

    def potential(
        self, data: Sequence[Any], params: dict[str, Any]
    ) -> tuple[dict[str, tuple[int, ...]], Callable[..., Callable[[dict[str, Array]], Array]]]:
        """The shapes of the unconstrained latent sites, by name; and arguments to their −log density."""
        found: list[Any] = []
        model = handlers.substitute(self.model, data=params)

        def initialized(data: Sequence[Any]) -> dict[str, Array]:
            args, kwargs = self.arguments(data)
            key = jax.random.key(0)
            found.append(
                initialize_model(
                    key,
                    model,
                    model_args=args,
                    model_kwargs=kwargs,
                    dynamic_args=True,
                    validate_grad=False,
                )
            )
            return found[-1].param_info.z

        try:
            start = jax.eval_shape(initialized, data)  # computes nothing
        except Exception as error:  # of any kind: it is still the user's model
            raise ValueError(
                f"NumPyro must be able to run the model, and says: {in_a_sentence(error)}"
            ) from error
        return {name: start[name].shape for name in sorted(start)}, found[-1].potential_fn

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Template) and self._content == other._content

    def __hash__(self) -> int:
        return hash(self._content)


@functools.lru_cache(maxsize=8)
def _survey(template: Template) -> Survey:
    """Compiled once for models of other data of the same shapes."""
    return Survey(template.run)


def looked_at(
    model: Callable[..., Any], form: Any, leaves: list[Any], is_data_fn: Callable[[Any], bool]
) -> tuple[Template, list[Any], Sites, Values]:
    """What the model is beside its data, these, and what it consists of."""
    are_data = [is_data_fn(leaf) for leaf in leaves]
    data = [leaf for leaf, own in zip(leaves, are_data, strict=True) if own]
    template = Template(model, form, leaves, are_data)
    return template, data, *_survey(template)(*data)


def is_data(leaf: Any) -> bool:
    """Whether jax can take it as an argument."""
    return isinstance(leaf, (np.ndarray, jax.Array)) and leaf.dtype.kind in "biuf"


def fingerprint(leaf: Any) -> Any:
    """What makes arguments the same: contents of arrays, values of other things, or else what they are."""
    if isinstance(leaf, (np.ndarray, jax.Array)):
        array = np.asarray(leaf)
        return array.shape, str(array.dtype), hashlib.sha256(array.tobytes()).hexdigest()
    try:
        hash(leaf)
    except TypeError:
        return id(leaf)
    return type(leaf), leaf
