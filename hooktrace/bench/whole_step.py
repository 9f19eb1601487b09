"""Whole-step time traced over untraced: 12.6 M parameters, 2 gloo ranks, all exporters attached.

Both sides are the same DDP model and the same hook: ``Tracer.recording``, switched on all ranks
between the same two steps, decides whether its calls are recorded.  Blocks of traced and untraced
steps alternate, and which comes first alternates too.  A block begins with untimed steps, longer
than the drain's interval, so that the drain's and the exporters' work of a traced block falls into
it as it does in a long run; a traced block ends with a flush, so that none of it falls into the
next.  A sample is the mean step time of a traced block over that of its untraced neighbour.
"""

from __future__ import annotations

import tempfile
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from .. import hooks
from ..tracer import Tracer
from ..wrapper import trace
from .backends import all_exporters, otlp_sink
from .ranks import run_ranks
from .rows import Row, row_of

__all__ = ["run"]

_WIDTH = 1024
_LAYERS = 12
_BATCH = 64
_LEAD_IN_STEPS = 4
_TIMED_STEPS = 10
_WARMUP_STEPS = 8


def run(*, quick: bool) -> list[Row]:
    """Return the ratio's row, and one with the step time for scale."""
    pairs = 4 if quick else 32
    with otlp_sink() as endpoint:
        rank0, _ = run_ranks(2, _measure, pairs, endpoint, deadline_s=600)
    ratios = [traced / untraced for traced, untraced in rank0]
    return [
        row_of(
            "whole step, 2 ranks, 12.6 M parameters, all exporters: traced / untraced",
            ratios,
            "ratio",
            budget=1.01,
        ),
        row_of("the same step, untraced", [u / 1e6 for _, u in rank0], "ms"),
    ]


def _measure(pairs: int, endpoint: str) -> list[tuple[float, float]]:
    """Return the mean ns of a step in each pair of blocks: traced, untraced."""
    layers = [torch.nn.Linear(_WIDTH, _WIDTH) for _ in range(_LAYERS)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=8)
    with (
        tempfile.TemporaryDirectory() as directory,
        Tracer(all_exporters(directory, endpoint)) as tracer,
    ):
        model.register_comm_hook(None, trace(hooks.allreduce_hook, tracer=tracer))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
        _steps(model, optimizer, _WARMUP_STEPS)
        blocks = []
        for count in range(pairs):
            times = {
                on: _block(tracer, model, optimizer, on) for on in (count % 2 > 0, not count % 2)
            }
            blocks.append((times[True], times[False]))
        tracer.recording = True
    return blocks


def _block(
    tracer: Tracer,
    model: DistributedDataParallel,
    optimizer: torch.optim.Optimizer,
    recording: bool,
) -> float:
    tracer.recording = recording
    dist.barrier()
    _steps(model, optimizer, _LEAD_IN_STEPS)
    start = time.perf_counter_ns()
    _steps(model, optimizer, _TIMED_STEPS)
    ended = time.perf_counter_ns()
    tracer.flush()
    return (ended - start) / _TIMED_STEPS


def _steps(model: DistributedDataParallel, optimizer: torch.optim.Optimizer, count: int) -> None:
    data = torch.randn(_BATCH, _WIDTH)
    for _ in range(count):
        optimizer.zero_grad()
        model(data).square().mean().backward()
        optimizer.step()
