"""Steps of plain hooks that are not timed, on real gloo ranks; the oracle: the same run, timed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

from hooktrace import HookError, Tracer, instrument
from hooktrace.staging import pass_end
from tests.distributed.harness import on, scenario
from tests.distributed.models import backward, gradients, heard, make_ddp
from tests.distributed.test_hookless import CAP_MB, SCRIPTS, Told
from tests.fakes import calls_in_flight
from tests.versions import HOOKS_GROUPS

pytestmark = pytest.mark.slow

STEPS = 12
untimed = mock.patch.object(pass_end, "ALL_TIMED", 0)


class Taken:
    """Torch's averaging hook, whose result is taken by ``take`` once that is set."""

    take: Callable[[torch.Tensor], Any] | None = None

    def __call__(self, state: Any, bucket: torch.distributed.GradBucket) -> Any:
        future: Any = default_hooks.allreduce_hook(state, bucket)
        take = self.take
        return future if take is None else future.then(lambda f: take(f.value()))


def _model(options: dict[str, Any]) -> DistributedDataParallel:
    made = options.get("module")
    torch.manual_seed(0)
    if made is not None:
        return DistributedDataParallel(made(), bucket_cap_mb=CAP_MB)
    return make_ddp(CAP_MB, **options)


def _told(script: Callable[..., Any], rank: int, options: dict[str, Any], all_timed: int) -> Any:
    ddp = _model(options)
    with Tracer(error_every=0) as tracer, mock.patch.object(pass_end, "ALL_TIMED", all_timed):
        instrument(ddp, default_hooks.allreduce_hook, tracer=tracer)
        script(ddp, rank)
        told = Told(tracer)
    dist.barrier()
    return told, gradients(ddp), tracer._recent.steps()


@on(2)
@scenario(deadline_s=240)
def test_only_times_are_left_out(rank: int) -> None:
    """In each kind of training; what a step exposes is known of each that has it when timed."""
    for name, (script, options) in SCRIPTS.items():
        ddp = _model(options)
        ddp.register_comm_hook(None, default_hooks.allreduce_hook)
        script(ddp, rank)
        dist.barrier()
        timed, bits, recent = _told(script, rank, options, 100)
        rare, same_bits, seen = _told(script, rank, options, 0)
        assert torch.equal(gradients(ddp), bits), name
        assert torch.equal(bits, same_bits), name
        assert (rare.losses, rare.anomalies, rare.models) == ({}, timed.anomalies, timed.models)
        without_stages = [(s[:4], [b[:3] for b in s[4]]) for s in rare.steps]
        assert without_stages == [(s[:4], [b[:3] for b in s[4]]) for s in timed.steps], name
        assert [e is None for e in rare.exposed] == [e is None for e in timed.exposed], name
        assert all(ready <= launched <= done for ready, launched, done in rare.times), name
        assert not any(b.bounded for _, buckets in recent for b in buckets), name
        for (step, buckets), (was, _) in zip(seen, recent, strict=True):
            bounded = [b for b in buckets if b.bounded]
            assert not (bounded and (step.step % 10 == 0 or step.join_dummy)), name
            assert all(b.stages == () for b in bounded), name
            assert step.wire_bytes == was.wire_bytes, name
            assert (step.wire_bytes is not None) == HOOKS_GROUPS or step.step == 0, name


@on(2)
@untimed
def test_what_a_step_exposes_is_its_own(rank: int) -> None:
    """Rank 1 is late with its last bucket alone: of that rank 0 sees the end, of others a bound."""
    ddp, late_s = make_ddp(CAP_MB), 0.2
    with Tracer(error_every=0) as tracer:
        instrument(ddp, default_hooks.allreduce_hook, tracer=tracer)
        backward(ddp, rank, 0)
        if rank == 1:
            next(ddp.module.parameters()).register_hook(lambda _: time.sleep(late_s))
        for step in range(1, 4):
            ddp.zero_grad()
            backward(ddp, rank, step)
        tracer.flush()
        step, buckets = tracer._recent.steps()[-1]
    dist.barrier()
    ends = [bucket.done_ns - step.first_ready_ns for bucket in buckets]
    assert step.communication_ns is None
    if rank == 0:
        assert step.exposed_ns >= 0.9 * late_s * 1e9
        assert max(ends[:-1]) < 0.5 * late_s * 1e9 < 0.9 * late_s * 1e9 < ends[-1]


@on(2)
@untimed
def test_what_has_arrived_is_not_in_flight(rank: int) -> None:
    """While backward goes on; and a pass that raises ends what had begun."""
    ddp, seen = make_ddp(CAP_MB), []

    def wait(_: torch.Tensor) -> None:
        dist.barrier()  # all buckets but the last were issued before, by each rank
        seen.append(calls_in_flight(tracer))
        raise RuntimeError("out of data")

    with Tracer(error_every=0) as tracer:
        instrument(ddp, default_hooks.allreduce_hook, tracer=tracer)
        for step in range(4):
            ddp.zero_grad()
            backward(ddp, rank, step)
        handle = next(ddp.module.parameters()).register_hook(wait)
        with pytest.raises(RuntimeError, match="out of data"):
            backward(ddp, rank, 4)
        handle.remove()
    step, buckets = tracer._recent.steps()[-1]
    dist.barrier()
    assert seen == [0]
    assert (tracer.losses(), step.step, step.complete, len(buckets)) == ({}, 4, False, 5)


def _nothing(result: torch.Tensor) -> None:
    """DDP would read it, and end the process."""


def _short_and_late(result: torch.Tensor) -> torch.Tensor:
    time.sleep(0.3)  # so that the pass has ended before
    return result[:-1]


@on(2)
@untimed
def test_a_wrong_result_fails_the_pass(rank: int) -> None:
    """Before DDP reads what was there when the pass ended, and after where DDP had to wait."""
    tries = (_nothing, CAP_MB, "None"), (_short_and_late, 100.0, "elements")
    for take, cap_mb, what in tries:
        ddp, hook = make_ddp(cap_mb), Taken()
        with Tracer(error_every=0) as tracer:
            instrument(ddp, hook, tracer=tracer)
            next(ddp.module.parameters()).register_hook(lambda _: dist.barrier())
            for step in range(3):
                ddp.zero_grad()
                backward(ddp, rank, step)
            hook.take = take
            ddp.zero_grad()
            with pytest.raises(HookError, match=what) as raised:
                backward(ddp, rank, 3)
        assert (raised.value.bucket, raised.value.stage) == (0, "future_wait")
        assert {a.kind for a in tracer.anomalies()} == {"hook_exception"}
        assert tracer.losses() == {}
        dist.barrier()


@on(2)
@untimed
def test_all_steps_are_timed_where_those_in_ten_are_sampled(rank: int) -> None:
    """Times of a sampled step do not count."""
    ddp = make_ddp(CAP_MB)
    with Tracer(error_every=5) as tracer, heard() as said:
        instrument(ddp, default_hooks.allreduce_hook, tracer=tracer)
        for step in range(STEPS):
            ddp.zero_grad()
            backward(ddp, rank, step)
        tracer.flush()
        recent = tracer._recent.steps()
    dist.barrier()
    assert said == []
    assert not any(b.bounded for _, buckets in recent for b in buckets)
    assert [step.step for step, _ in recent if step.checked] == [0, 5, 10]


@on(2)
@untimed
def test_a_sampled_step_is_timed(rank: int) -> None:
    """With ``error_every=7``, steps 0 and 7, and each tenth."""
    ddp = make_ddp(CAP_MB)
    with Tracer(error_every=7) as tracer:
        instrument(ddp, default_hooks.allreduce_hook, tracer=tracer)
        for step in range(STEPS):
            ddp.zero_grad()
            backward(ddp, rank, step)
        tracer.flush()
        recent = tracer._recent.steps()
    dist.barrier()
    timed = {step.step for step, buckets in recent if not any(b.bounded for b in buckets)}
    assert [step.step for step, _ in recent if step.checked] == [0, 7]
    assert {0, 7, 10} <= timed
    assert not timed & {1, 4, 5, 6, 9, 11}  # of others, collectives beside the buckets are seen
