"""What the rule costs beside PyTorch's Adam, for ten million parameters."""

import statistics

import torch

from dlrd.bench.timing import Row, rows_of_rule, seconds
from dlrd.torch import DynamicDecay


def many_parameters(size: int = 10_000_000, steps: int = 60) -> list[Row]:
    """Adam on `size` float32 parameters that drift and oscillate; the median over the steps.

    Of the exact rule the median is a step that looks at the signal-to-noise ratios, its dearer kind.
    """
    runs = {"fixed": _Run(size, None, False), "exact": _Run(size, None), "sampled": _Run(size, 10_000)}
    times: dict[str, list[float]] = {name: [] for name in runs}
    for step in range(steps):
        noise = torch.randn(size)
        # None always comes first, when the noise is still in cache.
        for name, run in sorted(runs.items(), reverse=step % 2 == 1):
            run.param.grad = run.param.detach() + noise
            times[name].append(seconds(run.step))
    medians = {name: statistics.median(each) * 1e3 for name, each in times.items()}
    return rows_of_rule("torch.DynamicDecay", "PyTorch's Adam with a fixed rate", size, medians)


class _Run:
    """Adam at work on one tensor, with the rule or without."""

    def __init__(self, size: int, max_tracked: int | None, has_rule: bool = True):
        self.param = torch.ones(size, requires_grad=True)
        self._optimizer = torch.optim.Adam([self.param], lr=1e-2)
        self._scheduler = DynamicDecay(self._optimizer, max_tracked=max_tracked) if has_rule else None

    def step(self) -> None:
        self._optimizer.step()
        if self._scheduler is not None:
            self._scheduler.step()
