"""What the ranks do in ``test_model.py`` where hooktrace itself fails on one of them."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

import hooktrace
from hooktrace import Tracer, hooks
from hooktrace.probes.probe import Probe
from hooktrace.tracing.traced_hook import TracedHook
from tests.distributed.harness import scenario
from tests.distributed.models import anomalies, backward, gradients, make_ddp

STEPS = 60
PATIENCE_S = 60
"""For which a probe waits for a rank that does not come."""

KINDS = ("copy", "join", "comparison", "clock", "clock at the meeting", "group")

_FAILS_AT = 14


def _once(function: Callable[..., Any], at: int) -> Callable[..., Any]:
    """Return a function that raises when it is called for the n-th time."""
    calls = itertools.count()

    def failing(*args: Any, **options: Any) -> Any:
        if next(calls) == at:
            raise MemoryError("of hooktrace's own")
        return function(*args, **options)

    return failing


def _trouble(kind: str, traced: TracedHook) -> AbstractContextManager[object]:
    """Return what makes hooktrace fail once."""
    if kind == "clock":  # a call a step
        return mock.patch.object(traced, "_clock", _once(traced._clock, _FAILS_AT))
    if kind == "clock at the meeting":
        return mock.patch.object(traced, "_clock", _once(traced._clock, 10))
    if kind == "group":
        module = "hooktrace.probes.model.PrivateGroup"
        from hooktrace.probes.model import PrivateGroup

        return mock.patch(module, _once(PrivateGroup, 0))
    name = {"copy": "__init__", "join": "join", "comparison": "_compare"}[kind]
    return mock.patch.object(Probe, name, _once_a_method(getattr(Probe, name)))


def _once_a_method(method: Callable[..., Any]) -> Callable[..., Any]:
    failing = _once(method, 2)

    def called(self: Any, *args: Any, **options: Any) -> Any:
        return failing(self, *args, **options)

    return called


def _train(rank: int, kind: str | None) -> tuple[torch.Tensor, float, list[int], dict[str, int]]:
    """Return gradients, the longest step in s, the steps that were probed, and what was lost."""
    ddp = make_ddp(1.0)
    seen, longest = [], 0.0
    with Tracer(error_every=1 if kind else 0, align_clocks=False) as tracer:
        traced = hooktrace.instrument(ddp, hooks.allreduce_hook, tracer=tracer)
        with _trouble(kind, traced) if kind and rank == 1 else mock.MagicMock():
            for step in range(STEPS):
                ddp.zero_grad()
                begin = time.perf_counter()
                backward(ddp, rank, step)
                dist.barrier()  # as a loop that looks at all ranks' losses
                longest = max(longest, time.perf_counter() - begin)
                seen.append(gradients(ddp).clone())
        tracer.flush()
        assert anomalies(tracer) == []
        probed = [b.step for b in tracer.buckets() if b.error is not None]
        return torch.stack(seen), longest, probed, tracer.losses()


@scenario(deadline_s=240)
@mock.patch("hooktrace.probes.model._TIMEOUT", timedelta(seconds=PATIENCE_S))
def alone(rank: int) -> dict[str, tuple[bool, float, list[int], dict[str, int]]]:
    """Return, by what fails on rank 1, (same gradients, longest step, probed steps, losses)."""
    plain, *_ = _train(rank, None)
    facts = {}
    for kind in KINDS:
        found, *rest = _train(rank, kind)
        facts[kind] = torch.equal(found, plain), *rest
    return facts  # type: ignore[return-value]


def forgotten_in_a_child(rank: int) -> int:
    """Return how a child ends that is forked between probes, and lets go of the model."""
    ddp = make_ddp(1.0)
    with Tracer(error_every=1, align_clocks=False) as tracer:
        traced = hooktrace.instrument(ddp, hooks.allreduce_hook, tracer=tracer)
        for step in range(14):
            backward(ddp, rank, step)
        child = os.fork()
        if not child:
            signal.alarm(20)
            traced._layout.models[0].sampling = None
            gc.collect()
            os._exit(0)
        return os.waitpid(child, 0)[1]
