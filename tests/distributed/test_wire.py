"""Bytes on the wire of plain hooks on real gloo ranks, as torch's Flight Recorder saw them.

From torch 2.14 on process groups tell them in every step: ``test_plain_hooks.py``.
"""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

from hooktrace import hooks
from tests.distributed.comparison import serialised
from tests.distributed.harness import on
from tests.distributed.models import traced
from tests.versions import HOOKS_GROUPS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(HOOKS_GROUPS, reason="this torch tells in another way"),
]

STEPS, EVERY = 8, 5
SAMPLED = (2, 5)
NUMEL, BUCKETS = 32 * 32 + 32, 6


@on(2)
@mock.patch("hooktrace.probes.wire._LONG_NS", 3600 * 10**9)  # however busy the machine is
def test_bytes_of_torchs_own_hooks(rank: int) -> None:
    """By collective and dtype, for each bucket and for the step, on sampled steps only."""
    half = hooks.fp16_compress_wrapper(default_hooks.allreduce_hook)
    power = serialised(powerSGD_hook.powerSGD_hook)
    state = powerSGD_hook.PowerSGDState(None, 1, start_powerSGD_iter=2)
    of_hooks: tuple[tuple[Any, Any, tuple[str, str, int]], ...] = (
        (default_hooks.allreduce_hook, None, ("all_reduce", "float32", 4 * NUMEL)),
        (half, None, ("all_reduce", "float16", 2 * NUMEL)),
        # Of a 32 x 32 matrix of rank 1 two vectors, and the bias as it is.
        (power, state, ("all_reduce", "float32", 3 * 32 * 4)),
    )
    for hook, state, expected in of_hooks:
        tracer, _ = traced(hook, rank, state, steps=STEPS, error_every=EVERY)
        kind, dtype, size = expected
        for step, buckets in tracer._recent.steps():
            sent = [bucket.sent for bucket in buckets]
            if step.step not in SAMPLED:
                assert (step.wire_bytes, step.sent, sent) == (None, None, [None] * len(buckets))
                continue
            assert step.gradient_bytes == BUCKETS * NUMEL * 4
            assert [plainly(one) for one in sent] == [[expected]] * BUCKETS
            assert plainly(step.sent) == [(kind, dtype, BUCKETS * size)]
            assert (step.wire_bytes, step.sent_unknown) == (size * BUCKETS, None)


def plainly(sent: Any) -> list[tuple[str, str, int]]:
    return [(t.collective, t.dtype, t.wire_bytes) for t in sent]
