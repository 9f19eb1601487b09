"""Steps of plain hooks that are not timed, on real gloo ranks; the oracle: the same run, timed."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.utils.checkpoint import checkpoint

from hooktrace import HookError, Tracer, instrument, trace
from hooktrace.staging import backward as backward_pass
from hooktrace.staging import pass_end
from tests.distributed.harness import on, scenario
from tests.distributed.models import backward, make_ddp, make_model, make_steps, traced
from tests.distributed.test_hookless import CAP_MB, SCRIPTS, Twice, run
from tests.fakes import calls_in_flight, plain
from tests.ranks.channel.jobs import wait_for
from tests.staging.test_units import Reduces
from tests.versions import HOOKS_GROUPS

pytestmark = pytest.mark.slow

STEPS = 12
untimed = mock.patch.object(pass_end, "ALL_TIMED", 0)


class Taken:
    """Torch's averaging hook; the first bucket's result is taken by ``take`` once that is set."""

    take: Callable[[torch.Tensor], Any] | None = None
    first: Any = None

    def __call__(self, state: Any, bucket: torch.distributed.GradBucket) -> Any:
        future: Any = default_hooks.allreduce_hook(state, bucket)
        take = self.take
        if take is None or bucket.index() > 0:
            return future
        done: Any = torch.futures.Future()
        complete = threading.Thread(target=lambda: done.set_result(take(future.wait())))
        complete.start()  # it is not there when the hook returns
        self.first = done
        return done

    def arrives(self, _: torch.Tensor) -> None:
        """Have the result there that ``_nothing`` holds back; the pass is not over yet."""
        if self.take is _nothing:
            _goes_on.set()
            wait_for(self.first.done)


@on(2)
@scenario(deadline_s=240)
def test_only_times_are_left_out(rank: int) -> None:
    """In each kind of training; what a step exposes is known of each that has it when timed."""
    for name, (script, options) in SCRIPTS.items():
        trained = partial(run, script, rank, options, hook=default_hooks.allreduce_hook)
        _, plain = trained(is_traced=False)
        timed, bits = trained()
        rare, same_bits = trained(is_timed=False)
        assert torch.equal(plain, bits), name
        assert torch.equal(bits, same_bits), name
        assert (rare.losses, rare.anomalies, rare.models) == ({}, timed.anomalies, timed.models)
        without_stages = [(s[:4], [b[:3] for b in s[4]]) for s in rare.steps]
        assert without_stages == [(s[:4], [b[:3] for b in s[4]]) for s in timed.steps], name
        assert [e is None for e in rare.exposed] == [e is None for e in timed.exposed], name
        assert all(ready <= launched <= done for ready, launched, done in rare.times), name
        assert not any(b.bounded for _, buckets in timed.recent for b in buckets), name
        for (step, buckets), (was, _) in zip(rare.recent, timed.recent, strict=True):
            bounded = [b for b in buckets if b.bounded]
            assert len(bounded) in {0, len(buckets)}, name
            assert not (bounded and (step.step % 10 == 0 or step.join_dummy)), name
            assert all(b.stages == () for b in bounded), name
            assert step.wire_bytes == was.wire_bytes, name
            assert (step.wire_bytes is not None) == HOOKS_GROUPS or step.step == 0, name


HOOKS = [default_hooks.allreduce_hook, *([None] if HOOKS_GROUPS else [])]


class InnerLast(torch.nn.Module):
    """A stack whose first layers are under a re-entrant checkpoint: DDP waits in its pass."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.inner, self.outer = make_model(layers // 2), make_model(layers // 2)

    def forward(self, data: torch.Tensor) -> Any:
        return self.outer(checkpoint(self.inner, data.requires_grad_(), use_reentrant=True))


@on(2)
@untimed
def test_what_a_step_exposes_is_its_own(rank: int) -> None:
    """Rank 1 is late with its last bucket alone: of that rank 0 sees the end, of others a bound."""
    late_s = 0.2
    for hook, make in itertools.product(HOOKS, (make_model, InnerLast)):
        ddp = make_ddp(CAP_MB, make=make)
        with Tracer(error_every=0) as tracer:
            instrument(ddp, hook, tracer=tracer)
            backward(ddp, rank, 0)
            if rank == 1:
                next(ddp.module.parameters()).register_hook(lambda _: time.sleep(late_s))
            make_steps(ddp, rank, range(1, 4))
            tracer.flush()
            step, buckets = tracer._recent.steps()[-1]
        dist.barrier()
        ends = [bucket.done_ns - step.first_ready_ns for bucket in buckets]
        assert (step.step, step.communication_ns) == (3, None)
        if rank == 0:
            assert step.exposed_ns >= 0.9 * late_s * 1e9
            assert max(ends[:-1]) < 0.5 * late_s * 1e9 < 0.9 * late_s * 1e9 < ends[-1]


@on(2)
@untimed
def test_a_pass_inside_another_is_where_ddp_waits(rank: int) -> None:
    """For the first bucket too, which came in the outer pass."""
    ddp, late_s = make_ddp(CAP_MB, make=InnerLast), 0.2

    def hook(state: Any, bucket: torch.distributed.GradBucket) -> Any:
        result, future = bucket.buffer(), torch.futures.Future()  # type: ignore[var-annotated]
        wait_s = late_s if bucket.index() == 0 else 0.005
        threading.Timer(wait_s, lambda: future.set_result(result)).start()
        return future

    with Tracer(error_every=0) as tracer:
        instrument(ddp, hook, tracer=tracer)
        make_steps(ddp, rank, range(4))
        tracer.flush()
        step, buckets = tracer._recent.steps()[-1]
    dist.barrier()
    assert all(bucket.bounded for bucket in buckets)
    assert step.exposed_ns >= 0.9 * late_s * 1e9


@on(2)
@untimed
def test_what_has_arrived_is_not_in_flight(rank: int) -> None:
    """While backward goes on; and a pass that raises ends what had begun."""
    for hook in HOOKS:
        ddp, seen = make_ddp(CAP_MB), []

        def wait(_: torch.Tensor) -> None:
            dist.barrier()  # all buckets but the last were issued before, by each rank
            seen.append(calls_in_flight(tracer))  # noqa: B023
            raise RuntimeError("out of data")

        with Tracer(error_every=0) as tracer:
            instrument(ddp, hook, tracer=tracer)
            make_steps(ddp, rank, range(4))
            handle = next(ddp.module.parameters()).register_hook(wait)
            with pytest.raises(RuntimeError, match="out of data"):
                backward(ddp, rank, 4)
            handle.remove()
        step, buckets = tracer._recent.steps()[-1]
        dist.barrier()
        assert seen == [0]
        assert (tracer.losses(), step.exposed_ns) == ({}, None)
        assert (step.step, step.complete, len(buckets)) == (4, False, 5)


_goes_on = threading.Event()


def _nothing(result: torch.Tensor) -> None:
    """Which DDP would read, and raise an error that names no hook."""
    assert _goes_on.wait(30)
    _goes_on.clear()


def _short_and_late(result: torch.Tensor) -> torch.Tensor:
    time.sleep(0.3)  # so that the pass has ended before
    return result[:-1]


@on(2)
@untimed
def test_a_wrong_result_fails_the_pass(rank: int) -> None:
    """Before DDP reads what was there when the pass ended, and after where DDP had to wait.

    Also of a pass that is recorded in part: the call of its last bucket is not.
    """
    for take, what, in_part in (
        (_nothing, "None", False), (_short_and_late, "elements", False), (_nothing, "None", True),
    ):  # fmt: skip
        ddp, hook = make_ddp(CAP_MB), Taken()
        with Tracer(error_every=0) as tracer:

            def arrives(gradient: torch.Tensor) -> None:
                hook.arrives(gradient)  # noqa: B023
                tracer.recording = not (in_part and hook.take)  # noqa: B023

            instrument(ddp, hook, tracer=tracer)
            next(ddp.module.parameters()).register_hook(arrives)
            make_steps(ddp, rank, range(3))
            hook.take = take
            ddp.zero_grad()
            with pytest.raises(HookError, match=what) as raised:
                backward(ddp, rank, 3)
            wait_for(lambda: not calls_in_flight(tracer))  # DDP waits for no other bucket then
        assert (raised.value.bucket, raised.value.stage) == (0, "future_wait")
        assert {a.kind for a in tracer.anomalies()} == {"hook_exception"}
        assert tracer.losses() == {}
        dist.barrier()


@on(2)
@untimed
def test_a_wrong_result_fails_the_first_pass_of_a_step(rank: int) -> None:
    """DDP reads it when the second one ends."""
    ddp, hook = make_ddp(CAP_MB, make=Twice), Taken()
    with Tracer(error_every=0) as tracer:
        instrument(ddp, hook, tracer=tracer)
        for step in range(4):
            hook.take = _nothing if step == 3 else None
            first, second = ddp(torch.randn(4, 32), torch.randn(4, 32))
            second.backward()
            if step < 3:
                first.backward()
            else:
                hook.arrives(first)
                with pytest.raises(HookError, match="None"):
                    first.backward()
    dist.barrier()


@on(2)
@untimed
def test_an_error_that_a_hook_survives_stays_where_it_was(rank: int) -> None:
    """One that calls another, and averages itself where that raises."""
    ddp = make_ddp(CAP_MB)

    def failing(state: Any, bucket: Any) -> Any:
        if bucket.index() == 1:
            raise ValueError("no")
        return default_hooks.allreduce_hook(state, bucket)

    with Tracer(error_every=0) as tracer:
        inner = trace(failing, tracer=tracer)

        def careful(state: Any, bucket):  # type: ignore[no-untyped-def]
            try:
                return inner(state, bucket)
            except HookError:
                return default_hooks.allreduce_hook(state, bucket)

        ddp.register_comm_hook(None, careful)
        make_steps(ddp, rank, range(4))
    assert {found.kind for found in tracer.anomalies()} == {"hook_exception"}
    dist.barrier()


def _halt() -> None:
    dist.barrier()  # what has begun before is there
    raise RuntimeError("out of data")


@on(2)
@untimed
def test_a_step_goes_on_after_a_pass_that_raised(rank: int) -> None:
    """DDP allows it where all gradients of that pass had come."""
    ddp = make_ddp(CAP_MB, make=Twice)
    with Tracer(error_every=0) as tracer:
        instrument(ddp, default_hooks.allreduce_hook, tracer=tracer)
        for step in range(6):
            ddp.zero_grad()
            data = torch.randn(4, 32, requires_grad=True)
            one, two = ddp(torch.randn(4, 32), Reduces.apply(data, _halt) if step == 3 else data)
            with pytest.raises(RuntimeError, match="data") if step == 3 else nullcontext():
                two.backward()
            one.backward()
        tracer.flush()
        recent = tracer._recent.steps()
    dist.barrier()
    assert tracer.losses() == {}
    assert [(step.step, step.complete) for step, _ in recent] == [(i, True) for i in range(6)]


def _late(future: Any) -> torch.Tensor:
    time.sleep(0.01)
    result: torch.Tensor = future.value()
    return result


@on(2)
@untimed
def test_a_step_is_timed_or_it_is_not(rank: int) -> None:
    """Buckets that were done when the hook returned are not like all: they were fast."""

    def fast(state: Any, bucket):  # type: ignore[no-untyped-def]
        future: Any = default_hooks.allreduce_hook(state, bucket)
        if bucket.index() == 0:
            future.wait()
            return future
        return future.then(_late)

    tracer, _ = traced(fast, rank, steps=4, error_every=0)
    recent = tracer._recent.steps()
    assert [{b.bounded for b in buckets} for _, buckets in recent[2:]] == [{True}] * 2
    assert all(b.stages == () for _, buckets in recent[2:] for b in buckets)


@on(2)
@untimed
def test_a_hook_that_calls_another_need_not_wait_for_it(rank: int) -> None:
    """As one that uses what was sent in the step before."""
    ddp, kept = make_ddp(CAP_MB), []

    def sent_later(state: Any, bucket: Any) -> Any:
        future: Any = torch.futures.Future()
        kept.append(lambda: future.set_result(bucket.buffer()))
        return future

    with Tracer(error_every=0) as tracer:
        inner = trace(sent_later, tracer=tracer)

        def delayed(state: Any, bucket):  # type: ignore[no-untyped-def]
            inner(state, bucket)
            return plain(state, bucket)

        ddp.register_comm_hook(None, delayed)
        for step in range(4):
            ddp.zero_grad()
            backward(ddp, rank, step)
            while kept:
                kept.pop()()
        tracer.flush()
        assert [step.complete for step, _ in tracer._recent.steps()] == [True] * 4
    assert (tracer.anomalies(), tracer.losses()) == ([], {})
    dist.barrier()


@on(2)
@untimed
def test_a_call_of_the_last_bucket_that_backward_hides_exposes_nothing(rank: int) -> None:
    """Backward goes on after it: what has arrived by its end was there long before."""
    ddp = make_ddp(CAP_MB)

    def slow(state: Any, bucket):  # type: ignore[no-untyped-def]
        time.sleep(0.02 * bucket.is_last())
        return default_hooks.allreduce_hook(state, bucket)

    with Tracer(error_every=0) as tracer:
        instrument(ddp, slow, tracer=tracer)
        for _ in range(4):
            ddp.zero_grad()
            data = torch.randn(4, 32, requires_grad=True)
            ddp(Reduces.apply(data, partial(time.sleep, 0.2))).square().sum().backward()
            dist.barrier()
        tracer.flush()
        recent = tracer._recent.steps()[1:]
    assert all(bucket.bounded for _, buckets in recent for bucket in buckets)
    assert [step.exposed_ns for step, _ in recent] == [0] * len(recent)


@on(2)
@untimed
def test_a_sampled_step_is_timed(rank: int) -> None:
    """Its times do not count: so all are where each tenth is sampled."""
    for every, sampled, untimed_steps in ((5, [0, 5, 10], set()), (7, [0, 7], {1, 4, 5, 6, 9, 11})):
        tracer, _ = traced(default_hooks.allreduce_hook, rank, steps=STEPS, error_every=every)
        recent = tracer._recent.steps()
        assert [step.step for step, _ in recent if step.checked] == sampled
        bounded = {step.step for step, buckets in recent if any(b.bounded for b in buckets)}
        # On torch 2.14 collectives beside the buckets are seen in others, which are timed too.
        assert untimed_steps <= bounded <= set(range(STEPS)) - {*sampled, 0, 10}
        assert bool(bounded) == bool(untimed_steps)


@on(2)
@untimed
def test_an_engine_that_takes_no_callback_costs_times_alone(rank: int) -> None:
    """The calls are stamped by callbacks then."""
    ddp, refusal = make_ddp(CAP_MB), mock.Mock(side_effect=RuntimeError("no callbacks"))
    with Tracer(error_every=0) as tracer:
        instrument(ddp, default_hooks.allreduce_hook, tracer=tracer)
        make_steps(ddp, rank, range(2))
        with mock.patch.object(backward_pass, "queue_callback", refusal):
            make_steps(ddp, rank, range(2, 3))
        make_steps(ddp, rank, range(3, 4))
        tracer.flush()
    dist.barrier()
    assert refusal.called
    assert set(tracer.losses()) == {"stamp_failed"}
