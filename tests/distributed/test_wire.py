"""Bytes on the wire of plain hooks, on real gloo ranks.

What torch's Flight Recorder saw in sampled steps; from torch 2.14 on, in every step, what process
groups tell, but of a hook inside another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

import hooktrace
from hooktrace import Tracer, hooks
from tests.distributed.comparison import serialised
from tests.distributed.harness import on
from tests.distributed.models import backward, make_ddp
from tests.distributed.test_plain_hooks import gathered
from tests.versions import HOOKS_GROUPS, RECORDS_GLOO

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not RECORDS_GLOO, reason="this torch's Flight Recorder knows NCCL only"),
]

STEPS = 8
EVERY = 5
CAP_MB = 0.004
NEVER_LONG_NS = 3600 * 10**9
"""On a busy machine reading the recorder may take so long that hooktrace lets it be for a while."""

Sent = list[tuple[str, str, int]]


def _run(
    hook: Callable[..., Any], rank: int, state: object = None, **options: Any
) -> list[tuple[int, int, int | None, Sent | None, list[Sent | None], str | None]]:
    """Return of each step number, gradient bytes, wire bytes, and what it sent.

    Then what each bucket did, and why what the step sent is not known.
    """
    ddp = make_ddp(CAP_MB)
    with Tracer(error_every=EVERY, **options) as tracer:
        hooktrace.instrument(ddp, hook, state, tracer=tracer)
        for step in range(STEPS):
            ddp.zero_grad()
            backward(ddp, rank, step)
        tracer.flush()
        completed = tracer._recent.steps()
    dist.barrier()

    def plain(sent: Any) -> Sent | None:
        return None if sent is None else [(t.collective, t.dtype, t.wire_bytes) for t in sent]

    return [
        (
            *(s.step, s.gradient_bytes, s.wire_bytes, plain(s.sent)),
            *([plain(b.sent) for b in buckets], s.sent_unknown),
        )
        for s, buckets in completed
    ]


NUMEL, BUCKETS = 32 * 32 + 32, 6

ALL_FLOAT32 = [("all_reduce", "float32", 4 * NUMEL)]

ALL_FLOAT16 = [("all_reduce", "float16", 2 * NUMEL)]

SENT = {
    "allreduce": ALL_FLOAT32,
    "fp16": ALL_FLOAT16,
    "in a wrapper": ALL_FLOAT16,
    # Of a 32 x 32 matrix of rank 1 two vectors, and the bias as it is.
    "powersgd": [("all_reduce", "float32", 3 * 32 * 4)],
    "all-gather": [("all_gather", "float32", 4 * NUMEL)],
}


def _own(state: Any, bucket: Any) -> Any:
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def _exchange(state: Any, bucket: Any) -> Any:
    """Average with the other rank, without any collective."""
    mine, theirs = bucket.buffer(), torch.empty_like(bucket.buffer())
    work = dist.isend(mine, 1 - dist.get_rank())
    dist.recv(theirs, 1 - dist.get_rank())
    assert work is not None
    work.wait()
    mine.add_(theirs).div_(2)
    return _own(state, bucket)


def torchs() -> Iterator[tuple[str, Callable[..., Any], Any]]:
    """Yield torch's own hooks with their states, and one that gathers."""
    yield "allreduce", default_hooks.allreduce_hook, None
    yield "fp16", default_hooks.fp16_compress_hook, None
    state = powerSGD_hook.PowerSGDState(None, 1, start_powerSGD_iter=2)
    yield "powersgd", serialised(powerSGD_hook.powerSGD_hook), state
    yield "in a wrapper", hooks.fp16_compress_wrapper(default_hooks.allreduce_hook), None
    yield "all-gather", gathered, None


@on(2)
@mock.patch("hooktrace.probes.wire._LONG_NS", NEVER_LONG_NS)
def test_bytes_of_torchs_own_hooks(rank: int) -> None:
    """By collective and dtype, for each bucket and for the step, on sampled steps only."""
    for name, hook, state in torchs():
        rows = _run(hook, rank, state)
        assert [row[0] for row in rows] == list(range(STEPS))
        for step, gradient_bytes, wire_bytes, sent, of_buckets, why in rows:
            assert why is None, name
            if HOOKS_GROUPS and name != "in a wrapper":
                begun = name != "powersgd" or step >= 2  # before, it averages
                whole = sum(size for *_, size in SENT[name]) if begun else 4 * NUMEL
                assert wire_bytes == BUCKETS * whole or step == 0  # in one bucket, of which ranks
                continue
            if step not in (2, 5):
                assert (wire_bytes, sent, set(of_buckets)) == (None, None, {None}), name
                continue
            assert gradient_bytes == BUCKETS * NUMEL * 4
            assert of_buckets == [SENT[name]] * BUCKETS, name
            assert sent == [(kind, dtype, BUCKETS * size) for kind, dtype, size in SENT[name]]
            assert wire_bytes == sum(size for *_, size in SENT[name]) * BUCKETS


@on(2)
@mock.patch("hooktrace.probes.wire._LONG_NS", NEVER_LONG_NS)
def test_a_hook_without_collectives(rank: int) -> None:
    """A process group tells of sends; else torch lists none of gloo's, and nothing is known."""
    for hook in (_own, _exchange):
        for step, gradient_bytes, wire_bytes, sent, of_buckets, why in _run(hook, rank):
            if HOOKS_GROUPS and hook is _exchange:
                assert (wire_bytes, why) == (gradient_bytes, None)
                assert sent == [("send", "float32", gradient_bytes)]
                continue
            assert (wire_bytes, sent, set(of_buckets)) == (None, None, {None})
            if HOOKS_GROUPS:
                assert "it sends nothing, or by other ways" in (why or "")
                continue
            assert (why is not None) == (step in (2, 5))
            assert why is None or "does not list sends and receives" in why
