"""A training step of 12.6 M parameters on 2 gloo ranks, buckets of 8 MB: traced, and checked.

*Traced over untraced*: as the whole step of ``hooktrace bench``, with all exporters and for longer.
Processor time of all threads is steadier than the clock on a machine that others use.

*Without a hook*: two models alike take turns in the same way: plain DDP, and what ``hooktrace run``
makes of it, with record files.

*Checked*: one traced model, checked at every second step; a sample is the difference between such a
step and the mean of its neighbours.  Spread over the 100 steps from one probe to the next, which is
the default, it is the share of training time that probing costs.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

import numpy as np
import torch
from torch.nn.parallel import DistributedDataParallel

from hooktrace import hooks
from hooktrace.commands.bench.harness import Hook, linear_stack
from hooktrace.commands.bench.table import Row
from hooktrace.integrations import models
from hooktrace.testing.ranks import run_ranks
from hooktrace.tracing.trace import trace
from hooktrace.tracing.tracer import Tracer, default_tracer

from .harness import (
    BATCH,
    LAYERS,
    WIDTH,
    Block,
    blocks_in_turns,
    otlp_sink,
    step_s,
    tracer_with_all_exporters,
    warm,
    whole_step_rows,
)

_PROBE_EVERY = 100
"""Steps, by default."""

_STEPS_BEFORE_PROBES = 17
"""In which the ranks agree to probe; then an even step comes second."""


def whole_step(*, quick: bool) -> Iterator[Row]:
    """Yield the ratio, by the clock and of processor time, and the step time for scale."""
    with otlp_sink():
        rounds, _ = run_ranks(2, _traced_blocks, 30.0 if quick else 240.0)
    yield from whole_step_rows("traced / untraced", rounds)


def _traced_blocks(seconds: float) -> list[list[Block]]:
    """Return blocks, traced and untraced."""
    with tracer_with_all_exporters() as tracer:
        train = warm(_model(trace(hooks.allreduce_hook, tracer=tracer)))
        return blocks_in_turns(tracer, [(train, True), (train, False)], seconds)


def _model(hook: Hook | None) -> DistributedDataParallel:
    return linear_stack(WIDTH, LAYERS, hook, cap_mb=8)


def without_a_hook(*, quick: bool) -> Iterator[Row]:
    """Yield what ``hooktrace run`` makes of a model without a hook, over DDP alone."""
    rounds, _ = run_ranks(2, _blocks_without_a_hook, 45.0 if quick else 240.0)
    yield from whole_step_rows("hooktrace run / DDP alone, no hook", rounds)


def _blocks_without_a_hook(seconds: float) -> list[list[Block]]:
    """Return blocks of two models alike, one of them known to what ``hooktrace run`` sets up."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HOOKTRACE_RECORD_DIR"] = folder
        ours, plain = _model(None), _model(None)
        models.know(ours)
        tracer = default_tracer()
        rounds = blocks_in_turns(tracer, [(warm(ours), True), (warm(plain), False)], seconds)
        if {step.hook for step in tracer.steps()} != {"ddp_allreduce"}:
            raise RuntimeError("the model without a hook was not traced")
        tracer.close()
    return rounds


def probes(*, quick: bool) -> Iterator[Row]:
    """Yield the rows of one probe, and of its cost spread over the steps to the next."""
    rank0, _ = run_ranks(2, _checked_steps_s, 21 if quick else 161)
    times = np.array(rank0)
    plain = (times[:-2:2] + times[2::2]) / 2
    added = times[1::2] - plain
    what = "one probe of the error, an 8 MB bucket, added to its step"
    yield Row(what, (added * 1e3).tolist(), "ms")
    what = f"the same over {_PROBE_EVERY} steps, share of training time"
    yield Row(what, (100 * added / plain / _PROBE_EVERY).tolist(), "%")


def _checked_steps_s(steps: int) -> list[float]:
    """Return step times; those at odd positions are checked."""
    data = torch.randn(BATCH, WIDTH)
    with Tracer(error_every=2) as tracer:
        model = _model(trace(hooks.fp16_compress_hook, tracer=tracer))
        times = [step_s(model, data) for _ in range(_STEPS_BEFORE_PROBES + steps)]
        checked = {b.step % 2 for b in tracer.buckets() if b.error is not None}
    if checked != {0}:
        raise RuntimeError(f"steps were checked at {checked} of 2, not at every second one")
    return times[_STEPS_BEFORE_PROBES:]
