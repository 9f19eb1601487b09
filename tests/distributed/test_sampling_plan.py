"""Which probes of a model take place, as its ranks agree on them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist

import hooktrace
from hooktrace import Tracer, hooks
from hooktrace.probes.model import PrivateGroup
from hooktrace.probes.probe import Probe
from hooktrace.ranks import native_calls
from hooktrace.tracing.traced_hook import TracedHook
from tests.distributed.harness import on, scenario
from tests.distributed.models import (
    anomalies,
    backward,
    gradients,
    heard,
    make_ddp,
    make_steps,
    of_all_ranks,
    traced,
)
from tests.distributed.test_probes import CAP_MB, FIRST, STEPS, checked_of

pytestmark = pytest.mark.slow


@on(2)
@scenario(apart=True)  # a rank that traces alone counts models that others do not
def test_ranks_agree_on_what_is_checked(rank: int) -> None:
    """Two models and no_sync: the same buckets on both ranks; nothing where they cannot agree."""
    with Tracer(error_every=3) as tracer:
        first, second = make_ddp(CAP_MB), make_ddp(0.006)
        for ddp in (first, second):
            hooktrace.instrument(ddp, hooks.allreduce_hook, tracer=tracer)
        for step in range(30):
            with first.no_sync():
                backward(first, rank, step)
            backward(first, rank, step)
            backward(second, rank, step)
        checked = [checked_of(tracer, name) for name in ("model0", "model1")]
    assert [[step for step, _ in one] for one in checked] == [[*range(3, 30, 3)]] * 2
    assert of_all_ranks(checked) == [checked] * 2
    ddp = make_ddp(CAP_MB)
    with Tracer(error_every=1) as tracer:
        hook = hooks.allreduce_hook
        ddp.register_comm_hook(None, hook if rank else hooktrace.trace(hook, tracer=tracer))
        make_steps(ddp, rank, range(20))
        assert checked_of(tracer) == []
    with (
        heard("is no longer measured") as said,
        Tracer(align_clocks=False, error_every=1 + rank) as tracer,
    ):
        # Other layers than before: of models that are alike rank 0 has traced one more.
        ddp = make_ddp(CAP_MB, 2)
        hooktrace.instrument(ddp, hooks.allreduce_hook, tracer=tracer)
        make_steps(ddp, rank, range(20))
        assert checked_of(tracer) == []
    (message,) = said
    assert "is no longer measured: " in message
    assert "error_every=1" in message
    assert "error_every=2" in message
    assert message.endswith("on rank 1; give all the same; training goes on")


PAUSES = {(14, 1), (110, 0)}
"""Steps at which a rank pauses for longer than probes wait."""


@on(2)
@mock.patch("hooktrace.probes.plan._TIMEOUT", timedelta(seconds=2))
@mock.patch("hooktrace.probes.plan._MOST_SILENT", 10)
def test_ranks_meet_again_after_a_pause(rank: int) -> None:
    """At the next step, or after one more on a busy machine; the same ones are checked on both."""
    ddp = make_ddp(CAP_MB)
    with heard("check") as said, Tracer(error_every=1, align_clocks=False) as tracer:
        hooktrace.instrument(ddp, hooks.allreduce_hook, tracer=tracer)
        for step in range(180):
            if (step, rank) in PAUSES:
                time.sleep(4)
            ddp.zero_grad()
            backward(ddp, rank, step)
        tracer.flush()
        assert anomalies(tracer) == []
        checked, failed = checked_of(tracer), tracer.losses().get("check_failed", 0)
    assert of_all_ranks(checked) == [checked] * 2
    steps = {step for step, _ in checked}
    assert {11, 12, 13} <= steps
    for paused_at, _ in PAUSES:
        assert paused_at not in steps
        assert {*range(paused_at + 60, paused_at + 70)} <= steps
    assert failed >= len(PAUSES)
    why = "not all ranks came to the same place of step 14 within 2 s"
    once, lost = said
    assert f"is not measured at step 14: {why}" in once
    assert lost.startswith(f"1 record(s) lost (check_failed: {why}")
    assert "all are asked again at the next one" in lost


@on(4)
def test_a_model_on_some_ranks_is_compared_on_these(rank: int) -> None:
    """The group is ``instrument``'s."""
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    mine = groups[rank // 2]

    def own_group(state: Any, bucket: Any) -> Any:
        work = dist.all_reduce(bucket.buffer().div_(2), group=mine, async_op=True)
        return work.get_future().then(lambda f: f.value()[0])

    own: dict[str, Any] = {"process_group": mine}
    tracer, _ = traced(own_group, rank, steps=STEPS, error_every=1, model=own)
    assert {b.members for b in tracer.buckets()} == {((0, 2, 1), (2, 4, 1))[rank // 2]}
    errors = [b.error.relative_l2 for b in tracer.buckets() if b.error is not None]
    assert errors == [0.0] * (STEPS - FIRST)
    assert anomalies(tracer) == []


LONG = 40
PATIENCE_S = 60
"""For which a probe waits for a rank that does not come."""

TROUBLES = ("copy", "comparison", "clock", "group")
"""What fails once on rank 1."""


def _once(function: Callable[..., Any], at: int) -> Callable[..., Any]:
    """Return a function, which may be a method, that raises when it is called for the n-th time."""
    calls = itertools.count()

    def failing(*args: Any, **options: Any) -> Any:
        if next(calls) == at:
            raise MemoryError("of hooktrace's own")
        return function(*args, **options)

    return failing


def _trouble(kind: str, hook: TracedHook) -> AbstractContextManager[object]:
    if kind == "clock":  # a call a step
        return mock.patch.object(hook, "_clock", _once(hook._clock, 14))
    if kind == "group":
        return mock.patch("hooktrace.probes.model.PrivateGroup", _once(PrivateGroup, 0))
    name = {"copy": "__init__", "comparison": "_compare"}[kind]
    return mock.patch.object(Probe, name, _once(getattr(Probe, name), 2))


def _train_with(rank: int, kind: str | None) -> tuple[torch.Tensor, float, Tracer]:
    """Return gradients, the longest step in s, and the tracer, which is closed."""
    ddp = make_ddp(1.0)
    seen, longest = [], 0.0
    with Tracer(error_every=1 if kind else 0, align_clocks=False) as tracer:
        hook = hooktrace.instrument(ddp, hooks.allreduce_hook, tracer=tracer)
        with _trouble(kind, hook) if kind and rank == 1 else mock.MagicMock():
            for step in range(LONG):
                ddp.zero_grad()
                begin = time.perf_counter()
                backward(ddp, rank, step)
                dist.barrier()  # as a loop that looks at all ranks' losses
                longest = max(longest, time.perf_counter() - begin)
                seen.append(gradients(ddp).clone())
        tracer.flush()
    return torch.stack(seen), longest, tracer


@on(2)
@scenario(deadline_s=240)
@mock.patch("hooktrace.probes.model._TIMEOUT", timedelta(seconds=PATIENCE_S))
def test_what_fails_on_one_rank_holds_nobody_up(rank: int) -> None:
    """The others do not wait for it until their timeout; all meet again, and gradients stay."""
    plain, *_ = _train_with(rank, None)
    for kind in TROUBLES:
        found, longest, tracer = _train_with(rank, kind)
        assert torch.equal(found, plain), kind
        assert longest < PATIENCE_S / 2, kind
        assert anomalies(tracer) == [], kind
        checked = [step for step, _ in checked_of(tracer)]
        assert len(checked) > LONG / 4, kind
        assert checked[-1] == LONG - 1, kind
        assert rank == 0 or sum(tracer.losses().values()) >= 1, kind
    assert native_calls.wait(PATIENCE_S)  # a process that ends waits for less
