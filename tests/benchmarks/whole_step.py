"""A training step of 12.6 M parameters on 2 gloo ranks, buckets of 8 MB: traced, and checked.

*Traced over untraced*: as the whole step of ``hooktrace bench``, with all exporters and for longer.
Processor time of all threads is steadier than the clock on a machine that others use.

*Without a hook*: two models alike take turns in the same way: plain DDP, and what ``hooktrace run``
makes of it, with record files.  Per bucket: one rank and one model of 40 buckets of 16 KB, whose
process group has hooktrace's functions in every other step; processor time of the training thread.

*Checked*: one traced model, checked at every second step; a sample is the difference between such a
step and the mean of its neighbours.  Spread over the 100 steps from one probe to the next, which is
the default, it is the share of training time that probing costs.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch.nn.parallel import DistributedDataParallel

from hooktrace import hooks
from hooktrace.commands.bench.harness import Hook, in_turns, linear_stack
from hooktrace.commands.bench.table import Row
from hooktrace.integrations import models
from hooktrace.records.bucket import ALL_TIMED, TIMED_ONE_IN
from hooktrace.staging.group_hooks import HOOK_ID, hooks_of
from hooktrace.testing.ranks import run_ranks
from hooktrace.tracing.trace import instrument, trace
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

_BUCKETS = 40
"""Of the model without a hook."""


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
    """Yield what ``hooktrace run`` makes of a model without a hook, over DDP alone.

    Without one at the reducer, and with the averaging hook, as on older torch.
    """
    (steps,) = run_ranks(1, _buckets_without_a_hook, 100 if quick else 800)
    added = np.array([(watched - alone) / _BUCKETS / 1e3 for watched, alone in steps])
    tens = added.reshape(-1, TIMED_ONE_IN).mean(axis=1).tolist()
    yield Row("no hook: per bucket, on the training thread", tens, "µs", budget=12)
    what = "the same where the step is timed, one in ten"
    yield Row(what, added[::TIMED_ONE_IN].tolist(), "µs")
    rounds, _ = run_ranks(2, _blocks_without_a_hook, 45.0 if quick else 240.0)
    ours, hooked, plain = zip(*rounds, strict=True)
    whats = {"hooktrace run / DDP alone, no hook": ours, "averaging hook / DDP alone": hooked}
    for what, traced in whats.items():
        yield from whole_step_rows(what, [*zip(traced, plain, strict=True)])


def _buckets_without_a_hook(rounds: int) -> list[list[int]]:
    """Return what a step took with the group's two functions and without, ns, in each round."""
    model, data = linear_stack(64, _BUCKETS, None), torch.randn(8, 64)
    group: Any = model.process_group

    def take_off() -> None:
        group.unregister_pre_hook(HOOK_ID)
        group.unregister_post_hook(HOOK_ID)

    def step_ns(watched: bool) -> int:
        if watched:
            group.register_pre_hook(HOOK_ID, functions.before)
            group.register_post_hook(HOOK_ID, functions.after)
        began = time.thread_time_ns()
        model(data).sum().backward()
        took = time.thread_time_ns() - began
        take_off()
        return took

    with Tracer([], error_every=0, align_clocks=False, interval_s=3600.0) as tracer:
        instrument(model, tracer=tracer)
        functions = hooks_of(group)
        take_off()
        turns = in_turns([partial(step_ns, True), partial(step_ns, False)])
        found = []
        for number, steps in enumerate(islice(turns, ALL_TIMED + rounds)):
            found.append(steps)
            if number % 8 == 0:
                tracer.flush()
        if tracer.steps()[-1].bucket_count != _BUCKETS or tracer.losses():
            raise RuntimeError("the model without a hook was not traced")
    return found[ALL_TIMED:]


def _blocks_without_a_hook(seconds: float) -> list[list[Block]]:
    """Return blocks of three models alike; ``hooktrace run`` knows two, one by a hook."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HOOKTRACE_RECORD_DIR"] = folder
        ours, hooked, plain = (_model(None) for _ in range(3))
        models.know(ours)
        tracer, train = default_tracer(), warm(ours)
        train(ALL_TIMED)
        tracer.needs_hook = True  # as on older torch
        models.know(hooked)
        sides = [(train, True), (warm(hooked), True), (warm(plain), False)]
        rounds = blocks_in_turns(tracer, sides, seconds)
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
