"""The paper's rule for PyTorch, as a scheduler of learning rates. Nothing here needs jax."""

import itertools
import math
import warnings
from typing import Any

from dlrd import regression
from dlrd.checks import check_between, check_count, check_not_negative

try:
    import torch
except ModuleNotFoundError as error:
    raise ImportError("dlrd.torch needs PyTorch, which is not installed: pip install torch") from error

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

_CPU_BLOCK_SIZE, _BLOCK_SIZE = 2**14, 2**24
"""Windows are kept and worked on in blocks of at most so many numbers. On a CPU, what is computed on the way
then stays in cache, and in one thread: with several, each operation waits for all of them. Elsewhere what
costs is to start an operation."""
_MAX_FEW = 2**16
"""Up to so many numbers have compensated sums in single precision, as in `dlrd.dynamic_decay`."""


class DynamicDecay(LRScheduler):
    r"""Lowers the learning rate when the parameters oscillate more than they progress.

    The rule of `dlrd.dynamic_decay`: of the same iterates it makes the same decisions. Each parameter is
    fitted by a straight line over the window of steps since the last decay, k = 0, 1, 2, …, and its
    signal-to-noise ratio is ρ = SSR/SSE. Once k ≥ k_min (2 at first) and the mean of ρ over all parameters is
    below `min_snr`, the rates of all groups are multiplied by `factor` from the next step on, k_min becomes
    k, and the next iterate opens a new window. The optimiser's own moments are left alone.

    The scheduler looks at the parameters when it is made, and at each `step()`, which belongs after each
    `optimizer.step()`. A call that no step of the optimiser came before does nothing, so steps that a
    `GradScaler` skips leave no trace, and `last_epoch` is the number of steps taken.

    A parameter that has not moved within the window, as a frozen one, is left out of the mean; one that lies
    on a perfect line counts as infinite; an iterate that is not finite is not recorded. Half precision is
    summed up in single precision, and real and imaginary parts count as two parameters. Where parameters are
    added, or moved to another device or type, a new window opens without a decay.

    Args:
        optimizer: whose rates are to fall. Those that its groups begin with may be large, as long as the run
            does not diverge. Other schedulers that multiply rates, as a warm-up, may work beside this one.
        factor: what the rates are multiplied by at a decay, between 0 and 1.
        min_snr: the mean signal-to-noise ratio ρ_min below which they are.
        max_tracked: an approximation for millions of parameters: watch only about this many, evenly spread
            over the tensors, instead of all. The window's memory and time then become negligible.
        min_travel: a window must also have this many steps times the rate (of the group with the largest)
            before it can end. The paper has no such floor; with few parameters a short window fires by
            chance.

    Attributes:
        snr: the mean signal-to-noise ratio when last looked at; nan before that.
        num_decays: how often the rates have fallen.

    Example:
        >>> import torch, dlrd.torch
        >>> generator = torch.Generator().manual_seed(0)
        >>> x = torch.full((20,), 5.0, requires_grad=True)
        >>> optimizer = torch.optim.Adam([x], lr=0.1)
        >>> scheduler = dlrd.torch.DynamicDecay(optimizer)
        >>> for _ in range(500):
        ...     optimizer.zero_grad()
        ...     torch.sum((x - torch.randn(20, generator=generator)) ** 2).backward()
        ...     optimizer.step()
        ...     scheduler.step()
        >>> scheduler.num_decays
        1

    References:
        Dinkel, Robalo Rei and Wall, "Dynamic Learning Rate Decay for Stochastic Variational Inference",
        Algorithm 1.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        factor: float = 0.1,
        min_snr: float = 1.0,
        max_tracked: int | None = None,
        min_travel: float = 0.0,
    ):
        check_between("factor", factor, 0, 1)
        check_between("min_snr", min_snr, 0, math.inf)
        if max_tracked is not None:
            check_count("max_tracked", max_tracked)
        check_not_negative("min_travel", min_travel)
        params = [param for group in optimizer.param_groups for param in group["params"]]
        if any(hasattr(param, "device_mesh") for param in params):
            raise TypeError(
                "DynamicDecay needs parameters that each process has whole, got a DTensor: processes that "
                "see different parts would decide differently"
            )
        self.factor = float(factor)
        self.min_snr = float(min_snr)
        self.max_tracked = None if max_tracked is None else int(max_tracked)
        self.min_travel = float(min_travel)
        self.snr = math.nan
        self.num_decays = 0
        self._windows: list[regression.Window] = []  # one a block; none before the first iterate of a window
        self._position = torch.zeros((), dtype=torch.int64)  # k of the newest iterate, where the numbers are
        self._max_position = 0  # the same if all iterates were finite: known without waiting for a device
        self._min_position = 2  # k_min: no decay before this place
        self._is_due = False  # whether the newest iterate makes the rates fall
        self._has_stepped = True  # whether there is an iterate that was not looked at: λ₀
        super().__init__(optimizer)  # takes step number 0
        optimizer.register_step_post_hook(self._note_step)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Listens to the copy of the optimiser: hooks are not copied."""
        self.__dict__.update(state)
        self.optimizer.register_step_post_hook(self._note_step)

    def step(self, epoch: int | None = None) -> None:
        """Looks at the parameters, and sets the rates of the next step. Belongs after `optimizer.step()`."""
        if self._has_stepped:
            self._is_due = self._record(self._values())
            self._has_stepped = False
            super().step(epoch)
        elif self.last_epoch == 0:
            warnings.warn(
                "DynamicDecay.step() was called before optimizer.step(), so there was nothing new to look at "
                "and it did nothing: call it after optimizer.step()",
                UserWarning,
                stacklevel=2,
            )

    def get_lr(self) -> list[float | Tensor]:
        """The rates of the next step; after `step()`, `get_last_lr()` has them."""
        scale = self.factor if self._is_due else 1.0
        return [group["lr"] * scale for group in self.optimizer.param_groups]

    def _get_closed_form_lr(self) -> list[float | Tensor]:
        """The rates to begin anew with; PyTorch asks for them where a `SequentialLR` hands over."""
        self._windows, self._min_position, self.num_decays = [], 2, 0
        self._record(self._values())
        self._has_stepped = False
        return [group.get("initial_lr", group["lr"]) for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """All that a run needs to go on bit for bit. `torch.load` reads it with `weights_only=True`."""
        return super().state_dict() | {"_windows": [tuple(window) for window in self._windows]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on as the scheduler that the state is of; the parameters may be on another device now."""
        values = self._values()
        windows = [regression.Window(*window) for window in state_dict["_windows"]]
        num_watched, num_here = (sum(map(torch.numel, each)) for each in (_anchors(windows), values))
        if windows and num_watched != num_here:
            raise ValueError(
                f"the state must be that of a scheduler with the same parameters: it watched {num_watched} "
                f"numbers, this one watches {num_here}"
            )
        windows = _in_blocks(windows, values) if windows else []
        position = state_dict["_position"].to(values[0].device)
        super().load_state_dict(state_dict | {"_windows": windows, "_position": position})

    def _note_step(self, optimizer: Optimizer, *_: Any) -> None:
        # A fused optimiser has this attribute while a GradScaler tells it whether to stay where it is.
        found_inf = getattr(optimizer, "found_inf", None)
        if found_inf is None or not found_inf.item():
            self._has_stepped = True

    def _values(self) -> list[Tensor]:
        """The numbers to watch, in blocks of one device and type, at least in single precision."""
        params = [
            param.detach()
            for group in self.optimizer.param_groups
            for param in group["params"]
            if param.is_floating_point() or param.is_complex()
        ]
        size = sum(map(torch.numel, params))
        stride = 1 if self.max_tracked is None else max(1, -(-size // self.max_tracked))
        runs = itertools.groupby((_every(stride, param) for param in params), _kind)
        return [block for (_, dtype), run in runs for block in _blocks(list(run), dtype)]

    def _record(self, values: list[Tensor]) -> bool:
        """Adds an iterate to the window, or opens one with it. Whether the rates are to fall."""
        is_finite = torch.stack([value.sum().to(values[0].device) for value in values]).isfinite().all()
        if list(map(_layout, _anchors(self._windows))) != list(map(_layout, values)):
            are_few = sum(map(torch.numel, values)) <= _MAX_FEW
            self._windows = [_opened(value, are_few) for value in values] if is_finite else []
            self._position = torch.zeros_like(is_finite, dtype=torch.int64)
            self._max_position = 0
            return False
        self._max_position += 1
        self._position = self._position + is_finite
        self._windows = [
            _recorded(window, value, is_finite, self._position)
            for window, value in zip(self._windows, values, strict=True)
        ]
        return self._max_position >= self._min_position and self._judged(int(self._position))

    def _judged(self, position: int) -> bool:
        """Whether the rates are to fall, with the newest iterate at `position`; if so, the window ends."""
        rate = max(float(group["lr"]) for group in self.optimizer.param_groups) if self.min_travel else 0.0
        if position < self._min_position or position * rate < self.min_travel:
            return False
        sums = [_sum_of_snr(window, float(position)) for window in self._windows]
        total, num_moved = map(sum, zip(*torch.stack(sums).tolist(), strict=True))
        if num_moved:
            self.snr = total / num_moved
        if not total < self.min_snr * num_moved:
            return False
        self.num_decays += 1
        self._windows, self._min_position = [], position
        return True


def _every(stride: int, param: Tensor) -> Tensor:
    """One in `stride` of a parameter's numbers, in a row; real and imaginary parts of complex ones."""
    picked = param.flatten()[::stride]
    return torch.view_as_real(picked).flatten() if picked.is_complex() else picked


def _blocks(values: list[Tensor], dtype: torch.dtype) -> tuple[Tensor, ...]:
    """The same numbers, in blocks; of a single tensor they may be views."""
    joined = torch.cat(values) if len(values) > 1 else values[0].contiguous()
    return joined.to(dtype).split(_CPU_BLOCK_SIZE if joined.device.type == "cpu" else _BLOCK_SIZE)


def _kind(value: Tensor) -> tuple[torch.device, torch.dtype]:
    """Where its window is, and of which type."""
    return value.device, torch.promote_types(value.dtype, torch.float32)


def _layout(value: Tensor) -> tuple[Any, ...]:
    return value.shape, *_kind(value)


def _anchors(windows: list[regression.Window]) -> list[Tensor]:
    return [window.anchor for window in windows]


def _opened(value: Tensor, are_few: bool) -> regression.Window:
    """A window with a copy of `value`, which may be the parameter itself."""
    return regression.start(value.clone(), keep_errors=are_few and value.dtype == torch.float32)


def _recorded(
    window: regression.Window, value: Tensor, is_finite: Tensor, position: Tensor
) -> regression.Window:
    """The window with `value` at `position`, or as it was: what is at its anchor adds nothing to the sums."""
    value = torch.where(is_finite.to(value.device), value, window.anchor)
    return regression.add(window, value, position.to(value.device))


def _sum_of_snr(window: regression.Window, position: float) -> Tensor:
    """The sum of SSR/SSE over all numbers that have moved, and how many have."""
    epsilon = torch.finfo(window.squares.dtype).eps
    snr, has_moved = regression.snr(window, position, epsilon, torch.where)
    return torch.stack([snr.sum(), has_moved.sum()])


def _in_blocks(windows: list[regression.Window], values: list[Tensor]) -> list[regression.Window]:
    """The windows in the blocks that the values have here: on another device these are larger or smaller.

    None if the types are others: then a new window opens.
    """
    old = [list(run) for _, run in itertools.groupby(windows, lambda window: window.anchor.dtype)]
    new = [list(run) for _, run in itertools.groupby(values, lambda value: value.dtype)]
    if [run[0].anchor.dtype for run in old] != [run[0].dtype for run in new]:
        return []
    return [window for run, blocks in zip(old, new, strict=True) for window in _divided(run, blocks)]


def _divided(windows: list[regression.Window], values: list[Tensor]) -> list[regression.Window]:
    """The numbers of windows of one type, divided as the values are."""
    fields = [[*window[:4], *(window.errors or ())] for window in windows]
    columns: Any = [_rows_of(list(column), values) for column in zip(*fields, strict=True)]
    return [
        regression.Window(anchor, total, squares, weighted, tuple(errors) or None)
        for anchor, total, squares, weighted, *errors in zip(*columns, strict=True)
    ]


def _rows_of(column: list[Tensor], values: list[Tensor]) -> list[Tensor]:
    """One number after the other, those of each value where it is."""
    pieces, found = list(column), []
    for value in values:
        taken, missing = [], value.numel()
        while missing:
            piece = pieces.pop(0)
            if len(piece) > missing:
                pieces.insert(0, piece[missing:])
                piece = piece[:missing]
            taken.append(piece.to(value.device))
            missing -= len(piece)
        found.append(torch.cat(taken) if taken else torch.zeros_like(value))
    return found
