"""Training runs of known models with a hook, a cap and a network, to hold predictions against.

    Setting --run, on each rank--> seconds of each settled step; record files in a directory

All settings of a network run one after another in the same processes, each with a DDP model and a
tracer of its own, and those that are short once more, in turns, until each has had its seconds: a
virtual machine is slower by a tenth for some seconds and then is not, which is nobody's hook.  The
calibrated run of a model is one of them, and goes on until it has its own.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ... import hooks
from ...exporters.record_file import RecordFileExporter
from ...tracing.trace import instrument
from ...tracing.tracer import Tracer

_BATCH = 256
_WARMUP_STEPS = 5
_LEAST_STEPS, _MOST_STEPS, _MOST_CALIBRATED = 10, 30, 250
"""Settled steps at a time."""
_CALIBRATED_STEPS = 47
"""Until it begins, and while it goes on."""


@dataclass(frozen=True, slots=True)
class Stack:
    """A model: ``layers`` residual layers of ``width`` x ``width``, in float32."""

    name: str
    layers: int
    width: int

    def build(self) -> torch.nn.Module:
        """Return the model, the same on all ranks."""
        torch.manual_seed(0)
        layers = [_Residual(self.width, 1 / self.layers) for _ in range(self.layers)]
        return torch.nn.Sequential(*layers)


STACKS = (Stack("many small layers", 64, 256), Stack("few large layers", 4, 1024))
"""16.8 MB of gradients each."""


class _Residual(torch.nn.Module):
    """Adds to its input, little at first: neither values nor gradients grow with depth."""

    def __init__(self, width: int, scale: float) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(width, width)
        with torch.no_grad():
            self.linear.weight.mul_(scale)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.relu(self.linear(x))


HOOKS: dict[str, tuple[Any, dict[str, Any] | None]] = {
    "allreduce": (hooks.allreduce_hook, None),
    "fp16": (hooks.fp16_compress_hook, None),
    "quantize-per-channel": (hooks.quantization_perchannel_hook, None),
    "powersgd": (hooks.powerSGD_hook, {"matrix_approximation_rank": 1}),
    "powersgd-rank4": (hooks.powerSGD_hook, {"matrix_approximation_rank": 4}),
}
"""By label: the hook, and its state's options."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What is run; ``cap_mb``: DDP's limit of a bucket.

    ``seconds``: of settled steps, but ``_LEAST_STEPS`` of them.  ``calibrate``: as many steps
    more as the tracer's calibration takes, and all of them at once.
    """

    model: Stack
    hook: str
    cap_mb: float
    seconds: float
    calibrate: bool = False

    def directory(self, root: str, turn: int = 0) -> str:
        """Return where its record files are, of each time that it runs."""
        name = f"{self.model.name}-{self.hook}-{self.cap_mb:g}{'-calibrated' * self.calibrate}"
        return str(Path(root, str(turn), name.replace(" ", "-")))


def runs_of(setting: Setting, root: str) -> list[str]:
    """Return where the record files of each of its runs are."""
    every = (setting.directory(root, turn) for turn in itertools.count())
    return list(itertools.takewhile(os.path.isdir, every))


def run_all(settings: Sequence[Setting], root: str) -> list[list[float]]:
    """Run all settings on this rank; return the seconds of each one's settled steps."""
    step_s: dict[Setting, list[float]] = {one: [] for one in settings}
    left, turn = list(settings), 0
    while left:
        for one in left:
            step_s[one] += run(one, one.directory(root, turn))
        left, turn = [one for one in left if _goes_on(one, step_s[one])], turn + 1
    return list(step_s.values())


def _goes_on(setting: Setting, step_s: Sequence[float]) -> bool:
    """Return whether a setting runs once more, which is the same on all ranks."""
    return not setting.calibrate and _agreed(sum(step_s)) < setting.seconds


def _agreed(value: float) -> float:
    """Return rank 0's value."""
    shared = torch.tensor(value, dtype=torch.float64)
    dist.broadcast(shared, 0)
    return float(shared)


def run(setting: Setting, directory: str) -> list[float]:
    """Train with a tracer; return the seconds of each settled step."""
    exporter = RecordFileExporter(directory)
    tracer = Tracer([exporter], error_every=0, calibrate=setting.calibrate)
    model = DistributedDataParallel(setting.model.build(), bucket_cap_mb=setting.cap_mb)
    hook, options = HOOKS[setting.hook]
    state = None
    if options is not None:
        state = hooks.PowerSGDState(None, start_powerSGD_iter=2, **options)
    instrument(model, hook, state, tracer=tracer)
    step_s = _train(model, setting)
    tracer.close()
    return step_s


def _train(model: DistributedDataParallel, setting: Setting) -> list[float]:
    torch.manual_seed(1 + dist.get_rank())
    data = torch.randn(_BATCH, setting.model.width)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    warmup = [_step_s(model, optimizer, data) for _ in range(_WARMUP_STEPS)]
    most = _MOST_CALIBRATED if setting.calibrate else _MOST_STEPS
    steps = int(_agreed(min(max(setting.seconds / warmup[-1], _LEAST_STEPS), most)))
    steps += _CALIBRATED_STEPS * setting.calibrate
    return [_step_s(model, optimizer, data) for _ in range(steps)]


def _step_s(
    model: DistributedDataParallel, optimizer: torch.optim.Optimizer, data: torch.Tensor
) -> float:
    started = time.perf_counter()
    optimizer.zero_grad()
    model(data).square().mean().backward()
    optimizer.step()
    return time.perf_counter() - started
