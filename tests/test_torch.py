"""The rule for PyTorch: it decides as the rule for jax does, and behaves as PyTorch's own schedulers do."""

import copy
import io
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
import torch.distributed.tensor

import dlrd
from dlrd.torch import DynamicDecay

NUMPY = {torch.float32: np.float32, torch.float64: np.float64}


class Follow(torch.optim.SGD):
    """An optimiser whose steps lead to iterates that are given."""

    def __init__(self, iterates: Sequence[np.ndarray], dtype: torch.dtype = torch.float64, lr: float = 1.0):
        self.iterates = iter(torch.as_tensor(np.asarray(iterates), dtype=dtype))
        self.param = next(self.iterates).clone()
        super().__init__([self.param], lr=lr)

    def step(self) -> None:
        self.param.copy_(next(self.iterates))


def followed(optimizer: Any, scheduler: DynamicDecay, num_steps: int) -> Iterator[tuple[float, int, float]]:
    """The rate, number of decays and signal-to-noise ratio after λ₀ and after each step."""
    yield scheduler.get_last_lr()[0], scheduler.num_decays, scheduler.snr
    for _ in range(num_steps):
        optimizer.step()
        scheduler.step()
        assert scheduler.get_last_lr() == [group["lr"] for group in optimizer.param_groups]
        yield scheduler.get_last_lr()[0], scheduler.num_decays, scheduler.snr


def by_torch(iterates: np.ndarray, dtype: torch.dtype = torch.float64, **settings: Any) -> np.ndarray:
    """Rates, numbers of decays, signal-to-noise ratios, one row each."""
    optimizer = Follow(iterates, dtype)
    scheduler = DynamicDecay(optimizer, **{"factor": 0.5, **settings})
    return np.asarray(list(followed(optimizer, scheduler, len(iterates) - 1))).T


@partial(jax.jit, static_argnums=(1, 2))
def states_of(iterates: jax.Array, max_tracked: int | None, min_travel: float, **settings: Any) -> Any:
    rule = dlrd.dynamic_decay(1.0, max_tracked=max_tracked, min_travel=min_travel, **settings)

    def step(state: Any, iterate: jax.Array) -> Any:
        _, state = rule.update(iterate, state, iterate)
        return state, (state.learning_rate, state.num_decays, state.snr)

    return jax.lax.scan(step, rule.init(iterates[0]), iterates)[1]


def by_jax(iterates: np.ndarray, dtype: torch.dtype = torch.float64, **settings: Any) -> np.ndarray:
    settings = {"max_tracked": None, "min_travel": 0.0, "factor": 0.5, **settings}
    max_tracked, min_travel = settings.pop("max_tracked"), settings.pop("min_travel")
    with jax.enable_x64(dtype == torch.float64):
        states = states_of(jnp.asarray(iterates, NUMPY[dtype]), max_tracked, min_travel, **settings)
    return np.asarray([np.asarray(each) for each in states])


def approach(num: int, size: int, seed: int, offset: float = 0.0) -> np.ndarray:
    """Iterates that come near a value and then oscillate around it: (iteration, parameter)."""
    rng = np.random.default_rng(seed)
    distance = rng.uniform(0, 5, size=size) * np.exp(-np.arange(num)[:, None] / rng.uniform(1, 10))
    return offset + distance + rng.normal(size=(num, size))


def assert_same(ours: np.ndarray, theirs: np.ndarray) -> None:
    np.testing.assert_array_equal(ours[:2], theirs[:2])


class TestTheSameAsInJax:
    @pytest.mark.parametrize("dtype", NUMPY, ids=str)
    @pytest.mark.parametrize("size", [1, 2, 7, 40])
    def test_on_random_trajectories(self, size: int, dtype: torch.dtype):
        """Decisions and rates, with offsets too large for raw sums; in double precision the ratios too."""
        num_decays = 0
        for seed in range(8):
            iterates = approach(100, size, seed, [0.0, 10.0, 1e3][seed % 3]).astype(NUMPY[dtype])
            ours, theirs = by_torch(iterates, dtype), by_jax(iterates, dtype)
            assert_same(ours, theirs)
            num_decays += theirs[1, -1]
            if dtype == torch.float64:
                # 100 roundings of squares from the first iterate, which is at most 10 sds away, and of which
                # the line leaves one part in 1 + ρ; ρ of one parameter is at most `size` times the mean.
                digits_lost = 100 * 10**2 * (1 + size * theirs[2])
                np.testing.assert_array_less(
                    np.abs(ours[2] / theirs[2] - 1)[2:], (digits_lost * np.finfo(float).eps)[2:]
                )
        assert num_decays >= 8

    @pytest.mark.parametrize("dtype", NUMPY, ids=str)
    @pytest.mark.parametrize("frozen", [[0], [1, 2], [0, 1, 2]], ids=str)
    def test_with_frozen_parameters(self, frozen: list[int], dtype: torch.dtype):
        iterates = approach(100, 3, seed=1)
        iterates[:, frozen] = 0.1
        ours = by_torch(iterates, dtype)
        assert_same(ours, by_jax(iterates, dtype))
        assert (ours[1, -1] > 0) == (len(frozen) < 3)

    @pytest.mark.parametrize("dtype", NUMPY, ids=str)
    def test_with_a_straight_line_among_them(self, dtype: torch.dtype):
        iterates = approach(100, 3, seed=1)
        assert by_torch(iterates, dtype)[1, -1] > 0
        iterates[:, 1] = 0.1 * np.arange(100)
        ours = by_torch(iterates, dtype)
        assert_same(ours, by_jax(iterates, dtype))
        assert ours[1, -1] == 0
        np.testing.assert_array_equal(ours[2, 2:], np.inf)

    @pytest.mark.parametrize("dtype", NUMPY, ids=str)
    @pytest.mark.parametrize("value", [np.nan, np.inf])
    def test_with_iterates_that_are_not_finite(self, value: float, dtype: torch.dtype):
        """At the start, in a window, where one opens, and several in a row."""
        finite = approach(100, 3, seed=1)
        (first, *_) = np.flatnonzero(np.diff(by_torch(finite, dtype)[1]))
        at = [0, 3, first + 2, first + 3, 40, 41, 42]
        iterates = np.insert(finite, np.asarray(at) - np.arange(len(at)), finite[0], axis=0)
        iterates[at, 1] = value
        ours = by_torch(iterates, dtype)
        assert_same(ours, by_jax(iterates, dtype))
        np.testing.assert_array_equal(np.delete(ours[:2], at, axis=1), by_torch(finite, dtype)[:2])

    @pytest.mark.parametrize(
        "settings",
        [{"max_tracked": 7}, {"min_travel": 8.0}, {"min_snr": 0.25}, {"min_snr": 4.0, "factor": 0.25}],
        ids=str,
    )
    def test_with_each_setting(self, settings: dict[str, Any]):
        iterates = approach(100, 40, seed=1)
        ours = by_torch(iterates, **settings)
        assert_same(ours, by_jax(iterates, **settings))
        plain = by_torch(iterates)
        assert ours[1, -1] > 0
        assert not np.array_equal(ours, plain, equal_nan=True)

    def test_with_a_factor_that_is_rounded(self):
        """The rates are multiplied one after the other here, and there all at once."""
        iterates = approach(100, 2, seed=1)
        ours, theirs = by_torch(iterates, factor=0.1), by_jax(iterates, factor=0.1)
        np.testing.assert_array_equal(ours[1], theirs[1])
        np.testing.assert_allclose(ours[0], theirs[0], rtol=2 * ours[1, -1] * np.finfo(float).eps)

    def test_with_parameters_for_several_blocks(self):
        """More than have compensated sums, and no multiple of a block."""
        iterates = approach(30, 70_001, seed=1)
        ours = by_torch(iterates, torch.float32)
        assert_same(ours, by_jax(iterates, torch.float32))
        assert ours[1, -1] > 0

    def test_in_a_run_with_adam(self):
        """The same gradients; all roundings differ."""
        noise = np.random.default_rng(0).normal(size=(400, 20))
        param = torch.full((20,), 2.0, dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.Adam([param], lr=0.25)
        scheduler = DynamicDecay(optimizer, factor=0.5)
        rates, path = [], []
        for each in noise:
            param.grad = param.detach() + torch.as_tensor(each)
            rates.append(optimizer.param_groups[0]["lr"])
            path.append(param.detach().numpy().copy())
            optimizer.step()
            scheduler.step()

        with jax.enable_x64(True):
            chain = optax.chain(optax.scale_by_adam(), dlrd.dynamic_decay(0.25, factor=0.5))

            def step(carry: Any, noise: jax.Array) -> Any:
                params, state = carry
                updates, state = chain.update(params + noise, state, params)
                rate = optax.tree_utils.tree_get(state, "learning_rate")
                return (optax.apply_updates(params, updates), state), (rate, params)

            start = jnp.full(20, 2.0)
            _, (their_rates, their_path) = jax.lax.scan(step, (start, chain.init(start)), jnp.asarray(noise))

        assert rates[-1] < 0.25
        np.testing.assert_array_equal(rates, their_rates)
        # Each of the 400 steps rounds some ten times numbers of at most 2; the pull to zero forgets them.
        np.testing.assert_allclose(path, their_path, atol=400 * 10 * 2 * np.finfo(float).eps)


class TestNumbers:
    def test_half_precision_is_summed_up_in_single(self):
        rounded = torch.as_tensor(approach(100, 3, seed=1)).to(torch.bfloat16).double().numpy()
        half = by_torch(rounded, torch.bfloat16)
        np.testing.assert_array_equal(half, by_torch(rounded, torch.float32))
        assert half[1, -1] > 0

    def test_complex_numbers_count_as_two(self):
        iterates = approach(100, 6, seed=1)
        joined = by_torch(iterates[:, ::2] + 1j * iterates[:, 1::2], torch.complex128)
        np.testing.assert_array_equal(joined[:2], by_torch(iterates)[:2])

    def test_tensors_of_several_types_decide_together(self):
        """One that is drawn out holds a decay back that the other would have made."""
        noisy = torch.as_tensor(approach(100, 3, seed=1))
        line = torch.arange(100.0, dtype=torch.float32)
        params = [noisy[0].clone(), line[:1].clone(), torch.zeros(2, dtype=torch.int64)]
        optimizer = torch.optim.SGD(params, lr=1.0)
        scheduler = DynamicDecay(optimizer)
        for at in range(1, 100):
            params[0].copy_(noisy[at])
            params[1].copy_(line[at])
            optimizer.step()
            scheduler.step()
        assert scheduler.num_decays == 0
        assert scheduler.snr == np.inf


class Problem:
    """Parameters that are drawn to zero and pushed by noise."""

    def __init__(self, optimizer: Any = torch.optim.Adam, seed: int = 0, **settings: Any):
        self.generator = torch.Generator().manual_seed(seed)
        self.params = [torch.full(shape, 2.0, requires_grad=True) for shape in [(5, 2), (), (4,)]]
        groups = [{"params": self.params[:2]}, {"params": self.params[2:], "lr": 0.125}]
        self.optimizer = optimizer(groups, **{"lr": 0.25, **settings})
        self.scheduler = DynamicDecay(self.optimizer, factor=0.5)

    def backward(self) -> None:
        for param in self.params:
            param.grad = param.detach() + torch.randn(param.shape, generator=self.generator)

    def run(self, num_steps: int) -> list[list[Any]]:
        rates = []
        for _ in range(num_steps):
            self.backward()
            self.optimizer.step()
            self.scheduler.step()
            rates.append(self.scheduler.get_last_lr())
        return rates


class TestAsASchedulerOfPyTorch:
    @pytest.mark.parametrize("settings", [{}, {"foreach": True}, {"fused": True}], ids=str)
    def test_groups_keep_rates_of_their_own_and_decay_together(self, settings: dict[str, bool]):
        problem = Problem(**settings)
        rates = problem.run(300)
        assert problem.scheduler.num_decays > 0
        assert all(second == first / 2 for first, second in rates)
        assert rates[-1][0] == 0.25 * 0.5**problem.scheduler.num_decays
        assert problem.scheduler.base_lrs == [0.25, 0.125]
        assert problem.scheduler.last_epoch == 300

    def test_rates_that_are_tensors_stay_the_same_tensors(self):
        problem = Problem(lr=torch.tensor(0.25), capturable=False, foreach=False)
        tensor = problem.optimizer.param_groups[0]["lr"]
        rates = problem.run(300)
        assert problem.optimizer.param_groups[0]["lr"] is tensor
        assert tensor == rates[-1][0] == 0.25 * 0.5**problem.scheduler.num_decays
        assert rates[0][0] == 0.25  # not the tensor itself, which has changed
        assert [[float(rate) for rate in each] for each in rates] == Problem().run(300)

    def test_a_resumed_run_goes_on_bit_for_bit(self):
        whole, part = Problem(), Problem()
        expected = whole.run(300)
        rates = part.run(150)
        file = io.BytesIO()
        torch.save(
            {
                "params": [param.detach() for param in part.params],
                "optimizer": part.optimizer.state_dict(),
                "scheduler": part.scheduler.state_dict(),
                "generator": part.generator.get_state(),
            },
            file,
        )
        file.seek(0)
        state = torch.load(file, weights_only=True)

        resumed = Problem(seed=1)
        for param, value in zip(resumed.params, state["params"], strict=True):
            param.data.copy_(value)
        resumed.optimizer.load_state_dict(state["optimizer"])
        resumed.scheduler.load_state_dict(state["scheduler"])
        resumed.generator.set_state(state["generator"])

        assert rates + resumed.run(150) == expected
        for param, other in zip(resumed.params, whole.params, strict=True):
            assert torch.equal(param, other)
        assert resumed.scheduler.snr == whole.scheduler.snr
        for window, other in zip(
            resumed.scheduler.state_dict()["_windows"], whole.scheduler.state_dict()["_windows"], strict=True
        ):
            assert all(map(torch.equal, window[:4], other[:4]))
            assert all(map(torch.equal, window[4], other[4]))

    def test_windows_in_other_blocks_are_divided_anew(self, monkeypatch):
        """As on another device, where blocks are larger or smaller."""
        whole = Problem()
        expected = whole.run(200)
        part = Problem()
        rates = part.run(100)
        state = part.scheduler.state_dict()
        for size in (3, 2**14):
            monkeypatch.setattr(dlrd.torch, "_CPU_BLOCK_SIZE", size)
            part.scheduler.load_state_dict(state)
            state = part.scheduler.state_dict()
        assert rates + part.run(100) == expected

    def test_a_state_is_a_snapshot(self):
        problem = Problem()
        problem.run(10)
        state = problem.scheduler.state_dict()
        before = copy.deepcopy(state)
        problem.run(1)
        assert all(map(torch.equal, state["_windows"][0][:4], before["_windows"][0][:4]))
        assert state["last_epoch"] == 10

    def test_a_state_of_other_parameters_is_refused(self):
        other = torch.zeros(7, requires_grad=True)
        scheduler = DynamicDecay(torch.optim.SGD([other], lr=1.0))
        message = "with the same parameters: it watched 15 numbers, this one watches 7$"
        with pytest.raises(ValueError, match=message):
            scheduler.load_state_dict(Problem().scheduler.state_dict())

    def test_copies_go_on_alike(self):
        problem = Problem()
        problem.run(10)
        other = copy.deepcopy(problem)
        assert other.run(290) == problem.run(290)
        assert other.scheduler.num_decays > 0

    def test_parameters_that_are_added_open_a_new_window(self):
        problem = Problem()
        problem.run(20)
        added = torch.zeros(3, requires_grad=True)
        problem.params.append(added)
        problem.optimizer.add_param_group({"params": [added], "lr": 0.5})
        before = problem.scheduler.get_last_lr()
        assert problem.run(1)[0] == [*before, 0.5]
        assert problem.scheduler._max_position == 0
        rates = problem.run(300)
        assert rates[-1][2] == 0.5 * rates[-1][0] / before[0] < 0.5

    def test_parameters_that_are_frozen_leave_with_their_window(self):
        """They stand still from then on: in windows to come they do not count."""
        problem = Problem()
        problem.run(20)
        frozen, start = problem.params.pop(0), problem.scheduler.num_decays
        frozen.requires_grad_(False)
        frozen.grad = None
        problem.run(400)
        assert problem.scheduler.num_decays > start + 1

        # The same windows with the frozen ones taken out.
        (window,) = problem.scheduler.state_dict()["_windows"]
        assert [int(torch.count_nonzero(each)) for each in window[1:4]] == [5, 5, 5]

    def test_parameters_of_another_type_open_a_new_window(self):
        problem = Problem(torch.optim.SGD)
        problem.run(20)
        for param in problem.params:
            param.data, param.grad = param.data.double(), None
        problem.generator.manual_seed(0)
        for param in problem.params:
            param.grad = torch.zeros_like(param)
        problem.optimizer.step()
        problem.scheduler.step()
        assert problem.scheduler._max_position == 0

    def test_beside_another_scheduler(self):
        """A warm-up multiplies the rates too."""
        problem = Problem()
        warm_up = torch.optim.lr_scheduler.LinearLR(problem.optimizer, start_factor=0.25, total_iters=8)
        both = torch.optim.lr_scheduler.ChainedScheduler([warm_up, problem.scheduler])
        assert both.get_last_lr() == [0.0625, 0.03125]
        for _ in range(300):
            problem.backward()
            problem.optimizer.step()
            both.step()
        assert problem.scheduler.num_decays > 0
        rate = 0.25 * 0.5**problem.scheduler.num_decays
        # The warm-up multiplies by nine quotients, each rounded.
        np.testing.assert_allclose(both.get_last_lr(), [rate, rate / 2], rtol=20 * np.finfo(float).eps)

    def test_after_another_scheduler(self):
        """Where it takes over, it begins anew with the rates as they were given."""
        problem = Problem()
        warm_up = torch.optim.lr_scheduler.ConstantLR(problem.optimizer, factor=0.25, total_iters=1000)
        sequence = torch.optim.lr_scheduler.SequentialLR(
            problem.optimizer, [warm_up, problem.scheduler], milestones=[5]
        )
        rates = []
        for _ in range(300):
            problem.backward()
            problem.optimizer.step()
            sequence.step()
            rates.append(sequence.get_last_lr()[0])
        assert rates[:6] == [0.0625] * 4 + [0.25] * 2
        assert problem.scheduler.num_decays > 0
        assert rates[-1] == 0.25 * 0.5**problem.scheduler.num_decays


class TestStepsThatWereNotTaken:
    def test_a_scheduler_before_its_optimiser_is_told(self):
        problem = Problem()
        message = (
            r"^DynamicDecay.step\(\) was called before optimizer.step\(\), so there was nothing new to look "
            r"at and it did nothing: call it after optimizer.step\(\)$"
        )
        with pytest.warns(UserWarning, match=message):
            problem.scheduler.step()
        assert problem.run(300) == Problem().run(300)

    def test_calls_between_steps_do_nothing(self):
        """Of a loop that adds gradients up over several batches, say."""
        problem, other = Problem(), Problem()
        rates = []
        for _ in range(300):
            rates += problem.run(1)
            problem.scheduler.step()
            problem.scheduler.step()
        assert rates == other.run(300)
        assert problem.scheduler.last_epoch == 300

    @pytest.mark.parametrize("fused", [False, True])
    def test_steps_that_a_grad_scaler_skips_leave_no_trace(self, fused: bool):
        problem, other = Problem(fused=fused), Problem(fused=fused)
        problem.run(1)
        other.run(1)
        scaler = torch.amp.GradScaler("cpu", init_scale=1.0, growth_interval=10**6)
        for _ in range(8):
            problem.backward()
            problem.params[0].grad[0, 0] = float("inf")
            scaler.scale(torch.ones(()))  # where it finds out which device it is for
            scaler.step(problem.optimizer)
            problem.scheduler.step()
            scaler.update(1.0)
        problem.generator.set_state(other.generator.get_state())
        assert problem.run(299) == other.run(299)
        assert problem.scheduler.num_decays > 0

    def test_a_window_that_cannot_end_waits_for_no_device(self, monkeypatch: pytest.MonkeyPatch):
        problem = Problem()
        while problem.scheduler.num_decays == 0:
            problem.run(1)
        problem.run(1)  # opens a window
        num_free = problem.scheduler._min_position - 1

        def wait(*_: Any) -> Any:
            raise AssertionError("a number was read")

        for name in ["__bool__", "__int__", "__float__", "item", "tolist"]:
            monkeypatch.setattr(torch.Tensor, name, wait)
        for _ in range(num_free):
            problem.scheduler._has_stepped = True
            problem.scheduler.step()
        problem.scheduler._has_stepped = True
        with pytest.raises(AssertionError, match="a number was read"):
            problem.scheduler.step()


class TestArguments:
    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"factor": 1.0}, "factor must be between 0 and 1, got 1.0"),
            ({"min_snr": 0}, "min_snr must be above 0, got 0"),
            ({"max_tracked": 0}, "max_tracked must be a whole number of at least 1, got int 0"),
            ({"min_travel": -1}, "min_travel must be at least 0, got -1"),
        ],
        ids=str,
    )
    def test_bad_ones_are_named(self, settings: dict[str, Any], message: str):
        optimizer = torch.optim.SGD([torch.zeros(3)], lr=0.1)
        with pytest.raises(ValueError, match=f"^{message}$"):
            DynamicDecay(optimizer, **settings)

    def test_sharded_parameters_are_refused(self):
        torch.distributed.init_process_group(
            "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
        )
        try:
            mesh = torch.distributed.init_device_mesh("cpu", (1,))
            sharded = torch.distributed.tensor.distribute_tensor(torch.zeros(4), mesh)
            with pytest.raises(
                TypeError, match=r"^DynamicDecay needs parameters that each process has whole"
            ):
                DynamicDecay(torch.optim.SGD([sharded], lr=0.1))
        finally:
            torch.distributed.destroy_process_group()


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return done.stdout + done.stderr.strip().rpartition("\n")[2]


def test_jax_is_not_imported():
    assert (
        run("import dlrd.torch, sys; print('torch' in sys.modules, 'jax' in sys.modules)") == "True False\n"
    )


def test_without_pytorch_one_sentence_says_what_to_install():
    code = "import sys; sys.modules['torch'] = None; import dlrd; dlrd.torch"
    expected = "ImportError: dlrd.torch needs PyTorch, which is not installed: pip install torch"
    assert run(code) == expected
