"""A model from a program that is run outside: prior, likelihood of its outputs, gradients if it has some."""

import functools
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from dlrd.models.likelihoods import Likelihood
from dlrd.models.named import NamedModel
from dlrd.models.outputs import OutputsFn, values_alone, with_jacobian, with_pullback
from dlrd.models.priors import Prior
from dlrd.simulation import Answer, Question, Session, Status
from dlrd.simulation.batch import asked, differenced, reduced
from dlrd.simulation.misfit import Own
from dlrd.simulation.run import NOTHING_PULLED

Gradient = Literal["given", "surrogate", "differences", "none"]
"""Where gradients come from: the simulator itself, a polynomial that is learnt from its outputs, with
differences of these where there is none yet, these alone, or nowhere."""
MAX_DIFFERENCED = 50
"""Parameters beyond which differences would take more runs than gradients are worth."""
NUM_PROBES = 8
"""Points at which a simulator is tried before it counts as broken."""


class Runs(NamedTuple):
    """How the runs of a model are made."""

    session: Session
    gradient: Gradient | None  # None: as it turns out
    step: float  # of differences, in the coordinates that are fitted


class SimulatorModel(NamedModel):
    """The posterior of a program's parameters, given its outputs; made by `dlrd.models.simulator`.

    Args:
        runs: how they are made.
        priors: of the parameters of the program, in its order, then of those of the noise.
        dim_run: how many numbers the program takes.
        likelihood: of the outputs.
        log_prior: of the variables, besides the priors.
    """

    can_fail = True

    def __init__(
        self,
        runs: Runs,
        priors: Mapping[str, Prior],
        dim_run: int,
        likelihood: Likelihood,
        log_prior: Callable[[dict[str, Array]], Float[Array, ""]] | None,
    ):
        super().__init__(self._log_prior, {name: each.support for name, each in priors.items()}, {}, {})
        self.runs = runs
        self.likelihood = likelihood
        self._priors, self._dim_run, self._joint = dict(priors), dim_run, log_prior
        data = likelihood.data
        self.observed_data = {} if data is None else {"data": data}
        self.constant_data: dict[str, np.ndarray] = {}
        self.close = weakref.finalize(self, runs.session.close)
        """Ends all processes; done anyway when the model is let go, or Python ends."""

    # A property where other models have a constant: the first run tells.
    @property
    def has_gradient(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.gradient != "none"

    @functools.cached_property
    def gradient(self) -> Gradient:
        """Where gradients come from."""
        chosen, is_given = self.runs.gradient, self._probed.gradient is not None
        if chosen == "given" and not is_given:
            raise ValueError(
                'gradient="given" needs a simulator that returns its outputs and their Jacobian, or a '
                "function that pulls sensitivities back; this one returns outputs alone"
            )
        if chosen == "surrogate" and isinstance(self.likelihood.misfit, Own):
            raise ValueError(
                'gradient="surrogate" needs outputs with data or a likelihood to learn, this simulator gives '
                'a log density; take "differences"'
            )
        if chosen is not None:
            return chosen
        if is_given:
            return "given"
        if self.num_emulated > MAX_DIFFERENCED or not self._can_be_differenced:
            return "none"
        return "differences" if isinstance(self.likelihood.misfit, Own) else "surrogate"

    def predictions(self, draws: Float[Array, "draw dim"], key: Key[Array, ""]) -> dict[str, np.ndarray]:
        """A run a draw, unless it is known: the outputs, and data with noise where the noise is known."""
        points = self._points(draws)
        outputs = asked(self.runs.session, points, False).outputs
        variables = {name: np.asarray(each, float) for name, each in self.constrained(draws).items()}
        seed = np.asarray(jax.random.key_data(key)).tolist()
        data = self.likelihood.data_of(outputs, variables, np.random.default_rng(seed))
        return {"outputs": outputs} if data is None else {"data": data, "outputs": outputs}

    def log_likelihood(self, draws: Float[Array, "draw dim"]) -> dict[str, np.ndarray]:
        """Of each datum; a run a draw, unless it is known."""
        points = self._points(draws)
        outputs = asked(self.runs.session, points, False).outputs
        variables = {name: np.asarray(each, float) for name, each in self.constrained(draws).items()}
        return {"data": self.likelihood.pointwise(outputs, variables)}

    @property
    def is_emulated(self) -> bool:
        return self.gradient == "surrogate"

    @property
    def num_emulated(self) -> int:
        return self._dim_run

    @property
    def output_shape(self) -> tuple[int, ...]:
        assert self._probed.outputs is not None
        return self._probed.outputs.shape

    @property
    def difference_step(self) -> float:
        return self.runs.step

    def outputs_at(self, draw: Float[Array, " dim"]) -> Float[Array, "..."]:
        fn = values_alone(lambda rows: asked(self.runs.session, rows, False)[:1], self.output_shape)
        return fn(self._parameters(draw))

    def log_density_of(self, outputs: Float[Array, "..."], draw: Float[Array, " dim"]) -> Float[Array, ""]:
        likelihood = self.likelihood.log_density(self.likelihood.given(outputs), self._variables(draw))
        return super().log_density(draw) + likelihood

    @property
    def num_workers(self) -> int:
        return self.runs.session.num_workers

    @property
    def runs_a_gradient(self) -> int:
        if self._is_differenced:
            return 2 * self._dim_run + 1
        return 2 if self._is_pulled_apart else 1

    @property
    def runs_sentence(self) -> str:
        return self.runs.session.sentence

    @property
    def runs_notes(self) -> list[str]:
        counts = self.runs.session.counts()
        num, num_good = sum(counts.values()), counts[Status.OK]
        how = {
            "given": "by the simulator itself",
            "surrogate": "of a polynomial that is learnt from the runs; what it misses, from values",
            "differences": f"by central differences with a step of {self.runs.step:g} prior sds",
            "none": "none, of values alone",
        }[self.gradient]
        each = f", {self.runs_a_gradient} run(s) each" if self.has_gradient and not self.is_emulated else ""
        return [f"Runs: {num:,}, of which {num - num_good:,} failed. Gradients: {how}{each}."]

    @property
    def runs_warnings(self) -> list[str]:
        return self.runs.session.warnings

    def _log_prior(self, variables: dict[str, Array]) -> Float[Array, ""]:
        own = [jnp.sum(self._priors[name].log_density(each)) for name, each in variables.items()]
        return sum(own, jnp.zeros(())) + (0.0 if self._joint is None else self._joint(variables))

    def log_density(self, draw: Float[Array, " dim"]) -> Float[Array, ""]:
        given = self._run_fn(self._row(draw))
        return super().log_density(draw) + self.likelihood.log_density(given, self._variables(draw))

    def _row(self, free: Float[Array, " dim"]) -> Float[Array, " row"]:
        """What is to be run for a draw: its parameters; for differences also those around."""
        here = self._parameters(free)
        if not self._is_differenced:
            return here
        units = self.runs.step * jnp.eye(self._dim_run, len(free), dtype=free.dtype)
        around = jax.vmap(self._parameters)(free + jnp.concatenate([units, -units]))
        return jnp.concatenate([here, jax.lax.stop_gradient(around).ravel()])

    def _parameters(self, free: Float[Array, " dim"]) -> Float[Array, " run"]:
        """What the program takes: all variables but those of the noise, which are the last."""
        variables = self._variables(free)
        return jnp.concatenate([jnp.ravel(each) for each in variables.values()])[: self._dim_run]

    def _points(self, draws: Any) -> Float[np.ndarray, "draw run"]:
        """The parameters of draws on the host; also while something is traced."""
        with jax.ensure_compile_time_eval():
            return np.asarray(jax.vmap(self._parameters)(jnp.asarray(draws, float)), float)

    @functools.cached_property
    def _probed(self) -> Answer:
        """A first run, at the middle of the prior or else at draws of it: what the simulator gives."""
        noise = np.random.default_rng(0).standard_normal((NUM_PROBES, self.dim))
        noise[0] = 0
        session, answer = self.runs.session, None
        for point in self._points(noise):
            answer = session.ask([Question(point, has_gradient=True)])[0]
            if answer.status is Status.OK:
                assert answer.outputs is not None
                session.shape = answer.outputs.shape
                return answer
        assert answer is not None
        raise ValueError(
            f"the simulator must work in the middle of the prior or near, but failed at all of {NUM_PROBES} "
            f"points; the last: {answer.status.value}, {answer.message}"
        )

    @property
    def _can_be_differenced(self) -> bool:
        inner = [each.support.inner for each in self._priors.values()]
        return all(support.is_elementwise for support in inner)

    @property
    def _is_differenced(self) -> bool:
        return self.gradient in ("surrogate", "differences")

    @property
    def _is_pulled_apart(self) -> bool:
        """Whether sensitivities come from jax, so that a second run is to pull them back."""
        given = self._probed.gradient
        is_whole = given is not None and given.shape != NOTHING_PULLED.shape
        return self.gradient == "given" and self.likelihood.misfit is None and not is_whole

    @functools.cached_property
    def _run_fn(self) -> OutputsFn:
        """What is run for a draw, to what the likelihood takes: the negative misfit, or the outputs."""
        outputs = self._probed.outputs
        assert outputs is not None
        shape = () if self.likelihood.misfit else outputs.shape
        if self.gradient == "none":
            return values_alone(lambda rows: self._evaluate(rows)[:1], shape)
        if self._is_pulled_apart:
            return with_pullback(lambda rows: self._evaluate(rows)[:1], self._pull, shape)
        return with_jacobian(self._evaluate, shape, self._dim_run)

    def _evaluate(self, rows: Float[np.ndarray, "draw row"]) -> tuple[np.ndarray, np.ndarray]:
        """Many draws at once, in NumPy; what failed, and derivatives that there are not, are nan."""
        dim, session, misfit = self._dim_run, self.runs.session, self.likelihood.misfit
        if self._is_differenced:
            batch = differenced(session, rows.reshape(len(rows), -1, dim))
        else:
            wants_gradient = self.gradient == "given" and not self._is_pulled_apart
            batch = asked(session, rows, wants_gradient)
        if misfit is not None:
            return reduced(misfit, batch, dim, is_pulled=self.gradient == "given")
        blank = np.full((*batch.outputs.shape, dim), np.nan)
        return batch.outputs, blank if batch.derivatives is None else batch.derivatives

    def _pull(self, rows: Float[np.ndarray, "draw run"], sensitivities: np.ndarray) -> tuple[np.ndarray]:
        """Sensitivities of the outputs back to the parameters."""
        found = asked(self.runs.session, rows, True, sensitivities).derivatives
        return (np.full(rows.shape, np.nan) if found is None else found,)
