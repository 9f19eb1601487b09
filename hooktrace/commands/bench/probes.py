"""What a probe of the compression error adds to a training step: two gloo ranks, 8 MB buckets.

One traced model, probed at every second step; a sample is the difference between a probed step and
the mean of its neighbours.  Spread over the 100 steps from one probe to the next, which is the
default, it is the share of training time that probing costs.
"""

from __future__ import annotations

import time

import torch
import torch.distributed as dist

from ... import hooks
from ...tracing.trace import trace
from ...tracing.tracer import Tracer
from .models import linear_stack
from .ranks import run_ranks
from .table import Row, row_of

_WIDTH = 1024
_LAYERS = 12
_BATCH = 64
_WARMUP_STEPS = 17  # in which the ranks agree to probe; then an even step comes second
_EVERY = 100


def run(*, quick: bool) -> list[Row]:
    """Return the rows of one probe, and of its cost spread over 100 steps."""
    steps = 21 if quick else 161
    rank0, _ = run_ranks(2, _measure, steps, deadline_s=600)
    plain = [(a + b) / 2 for a, b in zip(rank0[::2], rank0[2::2], strict=False)]
    added = [probed - p for probed, p in zip(rank0[1::2], plain, strict=True)]
    shares = [100 * a / p / _EVERY for a, p in zip(added, plain, strict=True)]
    return [
        row_of("one probe of the error, an 8 MB bucket, added to its step", added, "ms"),
        row_of(f"the same over {_EVERY} steps, share of training time", shares, "%"),
    ]


def _measure(steps: int) -> list[float]:
    """Return step times in ms; those at odd positions are probed."""
    data = torch.randn(_BATCH, _WIDTH)
    times = []
    with Tracer(error_every=2) as tracer:
        hook = trace(hooks.fp16_compress_hook, tracer=tracer)
        model = linear_stack(_WIDTH, _LAYERS, hook, cap_mb=8)
        for count in range(1 - _WARMUP_STEPS, steps + 1):
            dist.barrier()
            started = time.perf_counter()
            model.zero_grad()
            model(data).square().mean().backward()
            if count > 0:
                times.append((time.perf_counter() - started) * 1e3)
        probed = {b.step % 2 for b in tracer.buckets() if b.error is not None}
    if probed != {0}:
        raise RuntimeError(f"steps were probed at {probed} of 2, not at every second one")
    return times
