"""What the ranks do in ``test_wire.py``: torch's own hooks, whose bytes only torch itself sees."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import (
    default_hooks,
    powerSGD_hook,
    quantization_hooks,
)

import hooktrace
from hooktrace import Tracer, hooks
from tests.distributed.models import anomalies, backward, make_ddp

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


def _serialised(hook: Callable[..., Any]) -> Callable[..., Any]:
    """Return a hook that waits for its own result, as torch's multi-round hooks need on gloo."""

    def waiting(state: Any, bucket: Any) -> Any:
        future = hook(state, bucket)
        future.wait()
        return future

    return waiting


class _Stacked:
    """An all-gather whose future holds one stacked tensor, as torch's quantisation expects."""

    def __init__(self, outputs: list[torch.Tensor], work: Any) -> None:
        self._outputs, self._work = outputs, work

    def get_future(self) -> Any:
        return self._work.get_future().then(lambda _: [torch.stack(self._outputs)])


def _all_gather(outputs: list[torch.Tensor], tensor: torch.Tensor, **options: Any) -> _Stacked:
    return _Stacked(outputs, _REAL_ALL_GATHER(outputs, tensor, **options))


_REAL_ALL_GATHER = dist.all_gather


@mock.patch("hooktrace.probes.wire._LONG_NS", NEVER_LONG_NS)
def torchs_hooks(rank: int) -> dict[str, Any]:
    """Return what torch's own hooks sent, by hook."""
    facts = {
        "allreduce": _run(default_hooks.allreduce_hook, rank),
        "fp16": _run(default_hooks.fp16_compress_hook, rank),
        "powersgd": _run(
            _serialised(powerSGD_hook.powerSGD_hook),
            rank,
            powerSGD_hook.PowerSGDState(None, 1, start_powerSGD_iter=2),
        ),
        "noop": _run(hooktrace.trace(_own), rank),
        "in pairs": _run(_exchange, rank),
        "in a wrapper": _run(hooks.fp16_compress_wrapper(default_hooks.allreduce_hook), rank),
        "off": _run(default_hooks.allreduce_hook, rank, error="local"),
    }
    with mock.patch.object(quantization_hooks.dist, "all_gather", _all_gather):
        for name in ("pertensor", "perchannel"):
            hook = getattr(quantization_hooks, f"quantization_{name}_hook")
            facts[name] = _run(_serialised(hook), rank)
    hooktrace.default_tracer().close()  # of the hook that was traced twice
    return facts


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


@mock.patch("hooktrace.probes.wire._LONG_NS", NEVER_LONG_NS)
def overlapping(rank: int) -> Any:
    """Return what a hook sent that issues from a thread while two buckets are under way.

    Bucket 0 sends once more when bucket 1 has begun, and bucket 1 ends when that was sent.
    """
    begun, sent = threading.Event(), threading.Event()

    def later(work: Callable[[], None]) -> None:
        threading.Thread(target=work).start()

    def hook(state: Any, bucket: Any) -> Any:
        buffer, index = bucket.buffer(), bucket.index()
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        if index > 1 or bucket.is_last():
            future.set_result(buffer)
            return future

        def second() -> None:
            assert begun.wait(20)
            dist.all_reduce(torch.zeros(3, dtype=torch.float16))
            begun.clear()
            sent.set()
            future.set_result(buffer)

        def wait() -> None:
            assert sent.wait(20)
            sent.clear()
            future.set_result(buffer)

        if index == 0:
            dist.all_reduce(buffer)
            later(second)
        else:
            later(wait)
            begun.set()
        return future

    return _run(hook, rank)


@mock.patch("hooktrace.probes.wire._LONG_NS", NEVER_LONG_NS)
def liars(rank: int) -> dict[str, list[tuple[str, int]]]:
    """Return (kind, bucket) of the anomalies of hooks that say they compress, by hook."""
    return {
        name: sorted({(a.kind, a.bucket) for a in _anomalies(hook, rank)})
        for name, hook in (
            ("rounds to 16 bits, sends 32", fp16_compress_hook),
            ("compresses", default_hooks.fp16_compress_hook),
            ("may be in its warm-up", quantized_hook),
            ("claims nothing", default_hooks.allreduce_hook),
            ("staged", hooks.bf16_compress_hook),
        )
    }


def _anomalies(hook: Callable[..., Any], rank: int) -> list[Any]:
    ddp = make_ddp(CAP_MB)
    with Tracer(error_every=1) as tracer:
        hooktrace.instrument(ddp, hook, tracer=tracer)
        for step in range(30):
            ddp.zero_grad()
            backward(ddp, rank, step)
        tracer.flush()
        return anomalies(tracer)


def fp16_compress_hook(state: Any, bucket: Any) -> Any:
    """Do what torch's fp16 hook in C++ did until pull request 63375: the copy keeps the dtype."""
    tensor = bucket.buffer()
    tensor.copy_(tensor.to(torch.float16)).div_(dist.get_world_size())
    return dist.all_reduce(tensor, async_op=True).get_future().then(lambda f: f.value()[0])


def quantized_hook(state: Any, bucket: Any) -> Any:
    """Quantise nothing."""
    return default_hooks.allreduce_hook(state, bucket)
