"""Whole-step time traced over untraced: 12.6 M parameters, 2 gloo ranks, all exporters attached.

Both sides are the same DDP model and the same hook: ``Tracer.recording``, switched on all ranks
between the same two steps, decides whether its calls are recorded.  Blocks of traced and untraced
steps alternate, and which comes first alternates too.  A block begins with untimed steps, longer
than the drain's interval, so that the drain's and the exporters' work of a traced block falls into
it as it does in a long run; a traced block ends with a flush, so that none of it falls into the
next.  A sample is the mean step time of a traced block over that of its untraced neighbour.

There are as many samples as it takes for the median's 99 % interval to exclude 1.02, up to a limit
of time.  (99 and not 95: who looks again and again stops at the first lucky look.)

On a machine that others use, wall-clock ratios scatter by several per cent.  CPU time of the whole
process, all threads, is much steadier; with as many ranks as cores what it grows by is what a step
can lose at most, but for waits.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ... import hooks
from ...tracing.trace import trace
from ...tracing.tracer import Tracer
from .backends import all_exporters, otlp_sink
from .models import linear_stack
from .ranks import on_all_ranks, run_ranks
from .table import Row, interval_of_median, row_of

_WIDTH = 1024
_LAYERS = 12
_BATCH = 64
_LEAD_IN_STEPS = 4
_TIMED_STEPS = 10
_WARMUP_STEPS = 8
_LEAST_PAIRS = 20
_LOOK_EVERY = 10
_LIMIT = 1.02
_LONGEST_S = {True: 30.0, False: 480.0}
"""By ``quick``."""


def run(*, quick: bool) -> Iterator[Row]:
    """Yield the ratio, by the clock and of processor time, and the step time for scale."""
    with otlp_sink() as endpoint:
        pairs, _ = run_ranks(2, _measure, _LONGEST_S[quick], endpoint, deadline_s=900)
    note = f"{len(pairs)} pairs of blocks"
    yield row_of("traced / untraced", _ratios(pairs), "ratio", budget=1.01, note=note)
    shares = [traced.cpu_ns / untraced.cpu_ns for traced, untraced in pairs]
    yield row_of("the same, processor time of all threads", shares, "ratio")
    yield row_of("a step, untraced", [untraced.wall_ns / 1e6 for _, untraced in pairs], "ms")


class _Block(NamedTuple):
    """Mean of a step: by the clock, and processor time of the process."""

    wall_ns: float
    cpu_ns: float


_Pair = tuple[_Block, _Block]
"""Traced, untraced."""


def _ratios(pairs: Sequence[_Pair]) -> list[float]:
    return [traced.wall_ns / untraced.wall_ns for traced, untraced in pairs]


def _measure(longest_s: float, endpoint: str) -> list[_Pair]:
    with (
        tempfile.TemporaryDirectory() as directory,
        Tracer(all_exporters(Path(directory), endpoint)) as tracer,
    ):
        hook = trace(hooks.allreduce_hook, tracer=tracer)
        trainer = _Trainer(tracer, linear_stack(_WIDTH, _LAYERS, hook, cap_mb=8))
        trainer.steps(_WARMUP_STEPS)
        end = time.monotonic() + longest_s
        pairs: list[_Pair] = []
        while not on_all_ranks(_is_enough(pairs) or time.monotonic() > end):
            for count in range(_LOOK_EVERY):
                order = (True, False) if count % 2 else (False, True)
                blocks = {recording: trainer.block(recording) for recording in order}
                pairs.append((blocks[True], blocks[False]))
        tracer.recording = True
    return pairs


def _is_enough(pairs: Sequence[_Pair]) -> bool:
    if len(pairs) < _LEAST_PAIRS:
        return False
    least, most = interval_of_median(_ratios(pairs), 2.58)
    return most < _LIMIT or least > _LIMIT


class _Trainer:
    """Trains a model, in blocks of which some are recorded."""

    def __init__(self, tracer: Tracer, model: DistributedDataParallel) -> None:
        self._tracer = tracer
        self._model = model
        self._optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
        self._data = torch.randn(_BATCH, _WIDTH)

    def block(self, recording: bool) -> _Block:
        """Run a block and return what its timed steps took."""
        self._tracer.recording = recording
        dist.barrier()
        self.steps(_LEAD_IN_STEPS)
        cpu, wall = time.process_time_ns(), time.perf_counter_ns()
        self.steps(_TIMED_STEPS)
        wall, cpu = time.perf_counter_ns() - wall, time.process_time_ns() - cpu
        self._tracer.flush()
        return _Block(wall / _TIMED_STEPS, cpu / _TIMED_STEPS)

    def steps(self, count: int) -> None:
        """Train ``count`` steps."""
        for _ in range(count):
            self._optimizer.zero_grad()
            self._model(self._data).square().mean().backward()
            self._optimizer.step()
