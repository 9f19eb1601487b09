"""What a calibration takes of a job of 200 steps: 12.6 M parameters, 2 gloo ranks, buckets of 8 MB.

One traced model, with record files.  Stretches of steps in which it is calibrated, by the command
of ``hooktrace ctl``, and as many in which it is not take turns.  A sample is the difference of two
such neighbours over 200 steps of the second kind: all other steps of such a job are alike, since a
calibration that is over leaves nothing behind.  The control compares two that are not calibrated.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from ... import hooks
from ...exporters import RecordFileExporter
from ...ranks.control.messages import Command
from ...records import ComputeRecord, TrialRecord
from ...tracing.control import TracerControl
from ...tracing.trace import trace
from ...tracing.tracer import Tracer
from .harness import in_turns, linear_stack, run_ranks
from .table import Row

_WIDTH = 1024
_BATCH = 64
_JOB_STEPS = 200
_STEPS = 32
"""In which one is made, and ends."""

_WARMUP_STEPS = 8
_BUDGET_PERCENT = 3.0

_Stretch = tuple[float, float]
"""ns of a stretch: by the clock, and processor time of the process."""


def calibration(*, quick: bool) -> Iterator[Row]:
    """Yield the share of a job's time that a calibration takes, and the step time for scale."""
    (rounds, tried), _ = run_ranks(2, _rounds, 4 if quick else 20)
    times = np.array(rounds)  # (rounds, sides, clock or processor)
    share = 100 * (times[:, :2] - times[:, 2:]) / (times[:, 2:] / _STEPS * _JOB_STEPS)
    what = f"a calibration, share of a job of {_JOB_STEPS} steps"
    note = f"{tried} trials of hooks each"
    yield Row(what, share[:, 0, 0].tolist(), "%", budget=_BUDGET_PERCENT, note=note)
    yield Row("the same, processor time of all threads", share[:, 0, 1].tolist(), "%")
    yield Row("control: none, against none", share[:, 1, 0].tolist(), "%")
    yield Row("a step, not calibrated", (times[:, 2, 0] / _STEPS / 1e6).tolist(), "ms")


def _rounds(count: int) -> tuple[list[list[_Stretch]], int]:
    """Return stretches with a calibration, and two without; and how many trials one makes."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Tracer([RecordFileExporter(folder)], error_every=0) as tracer,
    ):
        model = linear_stack(_WIDTH, 12, trace(hooks.allreduce_hook, tracer=tracer), cap_mb=8)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
        train = partial(_train, model, optimizer, torch.randn(_BATCH, _WIDTH))
        train(_WARMUP_STEPS)
        stretch = partial(_stretch, tracer, train)
        sides = [partial(stretch, calibrated) for calibrated in (True, False, False)]
        rounds = list(islice(in_turns(sides), count))
        tracer.flush()
        made = len({record.step for record in tracer.records(ComputeRecord)})
        if not made:
            raise RuntimeError("no step was calibrated")
        tried = len(tracer.records(TrialRecord)) // count
    return rounds, tried


def _train(model: Any, optimizer: Any, data: torch.Tensor, steps: int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        model(data).square().mean().backward()
        optimizer.step()


def _stretch(tracer: Tracer, train: partial[None], calibrated: bool) -> _Stretch:
    if calibrated:
        (model,) = tracer.models.all()
        first = {model.name: model.position[0] + 1}
        TracerControl(lambda: [tracer], 0).do(Command(verb="calibrate", first=first))
    dist.barrier()
    cpu, wall = time.process_time_ns(), time.perf_counter_ns()
    train(_STEPS)
    return float(time.perf_counter_ns() - wall), float(time.process_time_ns() - cpu)
