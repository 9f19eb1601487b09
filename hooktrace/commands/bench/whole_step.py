"""Whole-step time traced over untraced: 12.6 M parameters, 2 gloo ranks, all exporters attached.

Both sides are the same DDP model and the same hook: ``Tracer.recording``, switched on all ranks
between the same two steps, decides whether its calls are recorded.  Blocks of traced and untraced
steps alternate, and which comes first alternates too.  A block begins with untimed steps, longer
than the drain's interval, so that the drain's and the exporters' work of a traced block falls into
it as it does in a long run; a traced block ends with a flush, so that none of it falls into the
next.  A sample is the mean step time of a traced block over that of its untraced neighbour.

On a machine that others use, wall-clock ratios scatter by several per cent.  CPU time of the whole
process, all threads, is much steadier; with as many ranks as cores what it grows by is what a step
can lose at most, but for waits.
"""

from __future__ import annotations

import tempfile
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ... import hooks
from ...tracing.traced_hook import trace
from ...tracing.tracer import Tracer
from .backends import all_exporters, otlp_sink
from .ranks import run_ranks
from .table import Row, row_of

__all__ = ["run"]

_WIDTH = 1024
_LAYERS = 12
_BATCH = 64
_LEAD_IN_STEPS = 4
_TIMED_STEPS = 10
_WARMUP_STEPS = 8


def run(*, quick: bool) -> list[Row]:
    """Return the ratio's row, and one with the step time for scale."""
    pairs = 4 if quick else 40
    with otlp_sink() as endpoint:
        rank0, _ = run_ranks(2, _measure, pairs, endpoint, deadline_s=600)
    what = "whole step, 2 ranks, 12.6 M parameters, all exporters: traced / untraced"
    return [
        row_of(what, [t[0] / u[0] for t, u in rank0], "ratio", budget=1.01),
        row_of("the same, CPU time of all threads", [t[1] / u[1] for t, u in rank0], "ratio"),
        row_of("the same step, untraced", [u[0] / 1e6 for _, u in rank0], "ms"),
    ]


Block = tuple[float, float]
"""Mean of a step in ns: wall-clock, and CPU time of the process."""


def _measure(pairs: int, endpoint: str) -> list[tuple[Block, Block]]:
    """Return each pair of blocks: traced, untraced."""
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
) -> Block:
    tracer.recording = recording
    dist.barrier()
    _steps(model, optimizer, _LEAD_IN_STEPS)
    cpu, wall = time.process_time_ns(), time.perf_counter_ns()
    _steps(model, optimizer, _TIMED_STEPS)
    wall, cpu = time.perf_counter_ns() - wall, time.process_time_ns() - cpu
    tracer.flush()
    return wall / _TIMED_STEPS, cpu / _TIMED_STEPS


def _steps(model: DistributedDataParallel, optimizer: torch.optim.Optimizer, count: int) -> None:
    data = torch.randn(_BATCH, _WIDTH)
    for _ in range(count):
        optimizer.zero_grad()
        model(data).square().mean().backward()
        optimizer.step()
