"""A training step of 12.6 M parameters on 2 gloo ranks, buckets of 8 MB: traced, and probed.

*Traced over untraced*, all exporters attached.  Both sides are the same DDP model and the same
hook: ``Tracer.recording``, switched on all ranks between the same two steps, decides whether its
calls are recorded.  Blocks of traced and untraced steps take turns, and which comes first changes
too.  A block begins with untimed steps, longer than the drain's interval, so that the drain's and
the exporters' work of a traced block falls into it as it does in a long run; a traced block ends
with a flush, so that none of it falls into the next.  A sample is the mean step time of a traced
block over that of its untraced neighbour.

There are as many samples as it takes for the median's 99 % interval to exclude 1.02, up to a limit
of time.  (99 and not 95: who looks again and again stops at the first lucky look.)

On a machine that others use, wall-clock ratios scatter by several per cent.  CPU time of the whole
process, all threads, is much steadier; with as many ranks as cores what it grows by is what a step
can lose at most, but for waits.

*Without a hook*: two models alike take turns in the same way: plain DDP, and what ``hooktrace run``
makes of it, with record files.

*Probed*: one traced model, probed at every second step; a sample is the difference between a probed
step and the mean of its neighbours.  Spread over the 100 steps from one probe to the next, which is
the default, it is the share of training time that probing costs.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch.nn.parallel import DistributedDataParallel

from hooktrace import hooks
from hooktrace.commands.bench.cost import _block
from hooktrace.commands.bench.harness import Hook, in_turns, linear_stack
from hooktrace.commands.bench.table import Row
from hooktrace.integrations import ending, models
from hooktrace.testing.ranks import run_ranks
from hooktrace.tracing.settings import default_tracer
from hooktrace.tracing.trace import trace
from hooktrace.tracing.tracer import Tracer

from .backends import all_exporters, otlp_sink
from .blocks import Block, ratios, train, until_enough
from .harness import step_s

_WIDTH = 1024
_BATCH = 64
_WARMUP_STEPS = 8
_PROBE_EVERY = 100
"""Steps, by default."""

_STEPS_BEFORE_PROBES = 17
"""In which the ranks agree to probe; then an even step comes second."""


def whole_step(*, quick: bool) -> Iterator[Row]:
    """Yield the ratio, by the clock and of processor time, and the step time for scale."""
    with otlp_sink():
        pairs, _ = run_ranks(2, _pairs, 30.0 if quick else 480.0)
    wall, cpu = ratios(pairs)
    note = f"{len(pairs)} pairs of blocks"
    yield Row("traced / untraced", wall, "ratio", budget=1.01, note=note)
    yield Row("the same, processor time of all threads", cpu, "ratio")
    yield Row("a step, untraced", [untraced[0] / 1e6 for _, untraced in pairs], "ms")


def _pairs(longest_s: float) -> list[list[Block]]:
    """Return blocks, traced and untraced."""
    with tempfile.TemporaryDirectory() as folder, Tracer(all_exporters(Path(folder))) as tracer:
        model = _model(trace(hooks.allreduce_hook, tracer=tracer))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
        steps = partial(train, model, optimizer, torch.randn(_BATCH, _WIDTH))
        steps(_WARMUP_STEPS)
        blocks = in_turns(
            [partial(_block, tracer, recording, steps) for recording in (True, False)]
        )
        pairs = until_enough(blocks, longest_s)
        tracer.recording = True
    return pairs


def _model(hook: Hook | None) -> DistributedDataParallel:
    return linear_stack(_WIDTH, 12, hook, cap_mb=8)


def without_a_hook(*, quick: bool) -> Iterator[Row]:
    """Yield what ``hooktrace run`` makes of a model without a hook, over DDP alone."""
    rounds, _ = run_ranks(2, _rounds_without_a_hook, 45.0 if quick else 360.0)
    wall, cpu = ratios(rounds)
    note = f"{len(rounds)} rounds of blocks"
    yield Row("hooktrace run / DDP alone, no hook", wall, "ratio", budget=1.01, note=note)
    yield Row("the same, processor time of all threads", cpu, "ratio")


def _rounds_without_a_hook(longest_s: float) -> list[list[Block]]:
    """Return blocks of two models alike, one of them known to what ``hooktrace run`` sets up."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HOOKTRACE_RECORD_DIR"] = folder
        ours, plain = _model(None), _model(None)
        models.patch(DistributedDataParallel)
        models.know(ours)
        tracer, data = default_tracer(), torch.randn(_BATCH, _WIDTH)
        trains = [
            partial(train, model, torch.optim.SGD(model.parameters(), lr=1e-6), data)
            for model in (ours, plain)
        ]
        for steps in trains:
            steps(_WARMUP_STEPS)
        sides = [partial(_block, tracer, steps is trains[0], steps) for steps in trains]
        pairs = until_enough(in_turns(sides), longest_s)
        if {step.hook for step in tracer.steps()} != {"ddp_allreduce"}:
            raise RuntimeError("the model without a hook was not traced")
        ending.say_nothing()
        tracer.close()
    return pairs


def probes(*, quick: bool) -> Iterator[Row]:
    """Yield the rows of one probe, and of its cost spread over the steps to the next."""
    rank0, _ = run_ranks(2, _probed_steps_s, 21 if quick else 161)
    times = np.array(rank0)
    plain = (times[:-2:2] + times[2::2]) / 2
    added = times[1::2] - plain
    what = "one probe of the error, an 8 MB bucket, added to its step"
    yield Row(what, (added * 1e3).tolist(), "ms")
    what = f"the same over {_PROBE_EVERY} steps, share of training time"
    yield Row(what, (100 * added / plain / _PROBE_EVERY).tolist(), "%")


def _probed_steps_s(steps: int) -> list[float]:
    """Return step times; those at odd positions are probed."""
    data = torch.randn(_BATCH, _WIDTH)
    with Tracer(error_every=2) as tracer:
        model = _model(trace(hooks.fp16_compress_hook, tracer=tracer))
        times = [step_s(model, data) for _ in range(_STEPS_BEFORE_PROBES + steps)]
        probed = {b.step % 2 for b in tracer.buckets() if b.error is not None}
    if probed != {0}:
        raise RuntimeError(f"steps were probed at {probed} of 2, not at every second one")
    return times[_STEPS_BEFORE_PROBES:]
