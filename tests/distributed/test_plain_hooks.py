"""Collectives as process groups tell of them, on real gloo ranks (torch >= 2.14).

Those of hooks that are not staged: a staged hook that does the same is the oracle.  And those of
the job that are no bucket's: the script says what it has issued in each step.
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

from hooktrace import Tracer, hooks, instrument, staged, trace
from hooktrace.probes.other_sampler import MOST_LISTED
from hooktrace.records import OtherCollectives
from hooktrace.staging import group_hooks, pass_end
from hooktrace.staging.collectives import AllGather, AllReduce, AllToAll, Broadcast
from hooktrace.tracing import hookless
from tests.distributed.harness import on
from tests.distributed.models import (
    FailingClock,
    Summing,
    anomalies,
    backward,
    gradients,
    heard,
    make_ddp,
    make_model,
    make_steps,
    traced,
    train,
)
from tests.fakes import plain
from tests.ranks.channel.jobs import wait_for
from tests.versions import FINALISES_BY_HAND, HOOKS_GROUPS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not HOOKS_GROUPS, reason="this torch's process groups take no hooks"),
]

STEPS = 4
CAP_MB = 0.004
"""A bucket for each layer."""

Wire = tuple[str | None, int | None, str | None]

Told = list[tuple[tuple[str, ...], list[Wire], int | None, float | None]]


def gathered(state: Any, bucket: Any) -> Any:
    mine = bucket.buffer()
    rows = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    work: Any = dist.all_gather(rows, mine, async_op=True)
    return work.get_future().then(lambda _: torch.stack(rows).mean(0))


def _gathered_staged(state: Any, bucket: Any) -> Iterator[Any]:
    mine = bucket.buffer()
    rows = yield AllGather(mine)
    return rows.mean(0)


def _exchanged(state: Any, bucket: Any) -> Any:
    mine, ranks = bucket.buffer(), dist.get_world_size()
    theirs = torch.empty_like(mine)
    work: Any = dist.all_to_all_single(theirs, mine, async_op=True)
    return work.get_future().then(lambda _: theirs.view(ranks, -1).sum(0).repeat(ranks))


def _exchanged_staged(state: Any, bucket: Any) -> Iterator[Any]:
    ranks = dist.get_world_size()
    theirs = yield AllToAll(bucket.buffer())
    return theirs.view(ranks, -1).sum(0).repeat(ranks)


def _two_rounds(state: Any, bucket: Any) -> Any:
    """Average, and have rank 0's copy in bf16: the second collective is issued in a callback."""
    tensor = bucket.buffer().div_(dist.get_world_size())
    first: Any = dist.all_reduce(tensor, async_op=True)
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()

    def second(_: Any) -> None:
        low = tensor.bfloat16()
        work: Any = dist.broadcast(low, 0, async_op=True)
        work.get_future().then(lambda _: done.set_result(tensor.copy_(low)))

    first.get_future().then(second)
    done.wait()  # for gloo: a callback's collectives and the next bucket's would change places
    return done


def _two_rounds_staged(state: Any, bucket: Any) -> Iterator[Any]:
    tensor = bucket.buffer().div_(dist.get_world_size())
    tensor = yield AllReduce(tensor)
    low = yield Broadcast(tensor.bfloat16(), 0)
    return tensor.copy_(low)


def _waiting(state: Any, bucket: Any) -> Any:
    future: Any = default_hooks.allreduce_hook(state, bucket)
    future.wait()
    return future


TWINS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "allreduce": (default_hooks.allreduce_hook, hooks.allreduce_hook),
    "waiting": (_waiting, hooks.allreduce_hook),
    "fp16": (default_hooks.fp16_compress_hook, hooks.fp16_compress_hook),
    "bf16": (default_hooks.bf16_compress_hook, hooks.bf16_compress_hook),
    "all-gather": (gathered, staged(_gathered_staged)),
    "all-to-all": (_exchanged, staged(_exchanged_staged)),
    "two rounds": (_two_rounds, staged(multi_round=True)(_two_rounds_staged)),
}


def _records(hook: Callable[..., Any], rank: int) -> tuple[Told, torch.Tensor]:
    """Return what is told of each bucket of the last step, and all gradients."""
    tracer, bits = traced(hook, rank, steps=STEPS, error_every=0)
    _, buckets = tracer._recent.steps()[-1]
    told = [
        (
            tuple(s.name for s in b.stages if s.name not in ("queue", "serialization_wait")),
            [(s.collective, s.wire_bytes, s.dtype) for s in b.stages if s.name == "wire"],
            *(b.wire_bytes, b.bus_bytes),
        )
        for b in buckets
    ]
    for bucket in buckets:  # one after another, within the call
        ends = [bucket.ready_ns, *(s.end_ns for s in bucket.stages), bucket.done_ns]
        assert ends == sorted(ends)
        assert all(s.start_ns <= s.end_ns for s in bucket.stages)
    return told, bits


@on(2)
def test_a_plain_hook_shows_what_its_staged_twin_shows(rank: int) -> None:
    """Stages in their order, collectives, bytes, dtypes and bus bytes; and the gradients stay.

    What is sent is known where nothing is timed, too.  A hook that issues from a callback is timed
    there: by what has arrived its collectives are told.
    """
    options: dict[str, Any] = {"steps": STEPS, "bucket_cap_mb": CAP_MB}
    for name, (hook, twin) in TWINS.items():
        untraced = train(lambda state, bucket, hook=hook: hook(state, bucket), rank, **options)
        told, bits = _records(hook, rank)
        of_twin, twins_bits = _records(twin, rank)
        with mock.patch.object(pass_end, "ALL_TIMED", 0):
            rare, rare_bits = _records(hook, rank)
        assert told == of_twin, name
        sent = [wire_bytes for *_, wire_bytes, _ in told]
        assert all(sent), name
        assert [wire_bytes for *_, wire_bytes, _ in rare] == sent, name
        assert any(stages for stages, *_ in rare) == (name == "two rounds"), name
        for found in (bits, twins_bits, rare_bits):
            assert torch.equal(found, untraced), name


BYTES = 4 * (32 * 32 + 32)


@on(2)
def test_the_scripts_own_collectives_are_not_a_hooks(rank: int) -> None:
    """Those in the backward pass beside the hooks, after it, and another model's in the group."""
    model = torch.nn.Sequential(*[m for layer in make_model() for m in (layer, Summing())])
    ddp = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=CAP_MB)
    other = make_ddp(CAP_MB)
    with Tracer() as tracer:
        instrument(ddp, default_hooks.fp16_compress_hook, tracer=tracer, model="one")
        instrument(other, default_hooks.allreduce_hook, tracer=tracer, model="other")
        for _ in range(STEPS):
            x = torch.randn(4, 32)
            (ddp(x).square().sum() + other(x).square().sum()).backward()
            dist.all_reduce(torch.ones(7))
        tracer.flush()
        steps = tracer._recent.steps()
        of_one = [buckets for step, buckets in steps if step.model == "one"][-1]
        of_other = {step.wire_bytes for step, _ in steps if step.model == "other"}
    dist.barrier()
    sent = [([s for s in b.stages if s.name == "wire"], b.wire_bytes) for b in of_one]
    assert of_other == {6 * BYTES}
    for wires, wire_bytes in sent:
        (wire,) = wires
        assert (wire.collective, wire.dtype) == ("all_reduce", "float16")
        assert wire.wire_bytes == wire_bytes == BYTES // 2


@on(2)
def test_what_a_thread_sends_while_two_buckets_are_under_way_is_not_known(rank: int) -> None:
    """Neither of the buckets nor of the step, and it is said."""
    waiting: list[tuple[Any, torch.Tensor]] = []

    def send() -> None:
        dist.all_reduce(torch.zeros(3))
        for future, buffer in (waiting.pop(), waiting.pop()):  # of this step, not of the next
            future.set_result(buffer)

    def hook(state: Any, bucket: Any) -> Any:
        if bucket.index() > 1 or bucket.is_last():
            return plain(state, bucket)
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        waiting.append((future, bucket.buffer()))
        if bucket.index() == 1:
            threading.Thread(target=send).start()
        return future

    tracer, _ = traced(hook, rank, steps=STEPS, error_every=0)
    last, buckets = tracer._recent.steps()[-1]
    assert [last.wire_bytes, *(b.wire_bytes for b in buckets[:2])] == [None] * 3
    assert "from a thread of its own" in (last.sent_unknown or "")


@on(2)
def test_what_a_thread_sends_is_the_only_bucket_s_that_is_under_way(rank: int) -> None:
    """As a hook does that has a thread of its own."""

    def hook(state: Any, bucket: Any) -> Any:
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()

        def send(buffer: torch.Tensor) -> None:
            dist.all_reduce(torch.zeros(3))
            future.set_result(buffer)

        threading.Thread(target=send, args=(bucket.buffer(),)).start()
        return future

    whole = {"bucket_cap_mb": 25}
    tracer, _ = traced(hook, rank, steps=STEPS, error_every=0, model=whole)
    last, (bucket,) = tracer._recent.steps()[-1]
    assert (last.sent_unknown, bucket.wire_bytes) == (None, 12)


@on(2)
def test_groups_keep_one_hook_that_keeps_nothing(rank: int) -> None:
    """However many models come and go: torch may end the process where a table of hooks changes.

    It holds no group and no hook, and leaves those of others in the same registry alone.
    """
    group: Any = dist.new_group()
    theirs: list[int] = []
    group.register_post_hook(1, lambda args: theirs.append(args.op_id))
    gone = []
    with Tracer() as tracer:
        for hook in (default_hooks.allreduce_hook, None, default_hooks.fp16_compress_hook):
            ddp: Any = torch.nn.parallel.DistributedDataParallel(make_model(), process_group=group)
            handle = instrument(ddp, hook, None if hook is None else group, tracer=tracer)
            backward(ddp, rank, 0)
            gone += [weakref.ref(ddp), weakref.ref(handle)]
            mine = group_hooks.hooks_of(group)
            dist.barrier()
            del ddp, handle
            gc.collect()
    seen = len(theirs)
    assert mine is group_hooks.hooks_of(group)
    assert mine.models == ()
    dist.all_reduce(torch.ones(1), group=group)
    went_on = len(theirs) > seen > 0
    alive = weakref.ref(group)
    dist.barrier()
    dist.destroy_process_group(group)
    del group
    gc.collect()
    assert ([one() for one in gone], went_on, alive()) == ([None] * 6, True, None)


def _seen() -> list[group_hooks.SeenCollective]:
    return [one for one in gc.get_objects() if isinstance(one, group_hooks.SeenCollective)]


@on(2)
def test_nothing_is_kept_of_calls_that_have_ended(rank: int) -> None:
    """But the last one of each bucket, before and after DDP has rebuilt them."""
    ddp = make_ddp(CAP_MB)
    gc.collect()
    others = {id(one): one for one in _seen()}  # of models that ranks had before

    def held() -> int:
        return sum(id(one) not in others for one in _seen())

    gc.disable()
    try:
        with Tracer(error_every=0) as tracer:
            instrument(ddp, default_hooks.allreduce_hook, tracer=tracer)
            make_steps(ddp, rank, range(50))
            tracer.flush()
            buckets = tracer.steps()[-1].bucket_count
            # gloo's workers let go of the last ones when they come to it.
            is_so = wait_for(lambda: held() <= 2 * buckets)
    finally:
        gc.enable()
    dist.barrier()
    assert is_so, held()


@on(2)
def test_a_clock_that_fails_in_a_groups_hook_costs_the_times_alone(rank: int) -> None:
    """What is raised in one would break the reducer for good."""
    clock = FailingClock()

    def hook(state: Any, bucket: Any) -> Any:
        clock.fails = True
        try:
            return default_hooks.allreduce_hook(state, bucket)
        finally:
            clock.fails = False

    untraced = make_ddp(CAP_MB)
    untraced.register_comm_hook(None, default_hooks.allreduce_hook)
    ddp = make_ddp(CAP_MB)
    with heard(), Tracer(clock=clock, error_every=0, align_clocks=False) as tracer:
        ddp.register_comm_hook(None, trace(hook, tracer=tracer))
        for step in range(STEPS):
            for model in (ddp, untraced):
                model.zero_grad()
                backward(model, rank, step)
        tracer.flush()
        lost = tracer.losses().get("stamp_failed", 0)
    dist.barrier()
    assert torch.equal(gradients(ddp), gradients(untraced))
    assert lost > 0


@pytest.mark.skipif(not FINALISES_BY_HAND, reason="DDP of this torch waits at the end of backward")
@on(2)
def test_what_a_model_exposes_that_is_finalised_by_hand_is_not_known(rank: int) -> None:
    """It waits for its buckets when that is done; also where nobody has named the model."""
    for is_named in (True, False):
        ddp: Any = make_ddp(CAP_MB)
        with Tracer(error_every=0) as tracer:
            if is_named:
                instrument(ddp, hooks.allreduce_hook, tracer=tracer)
            else:
                ddp.register_comm_hook(None, trace(hooks.allreduce_hook, tracer=tracer))
            ddp.require_manual_backward_finalization = True
            for step in range(STEPS):
                ddp.zero_grad()
                backward(ddp, rank, step)
                ddp.finalize_backward()
            assert [step.exposed_ns for step in tracer.steps()] == [None] * STEPS


MOST_STEPS, EVERY = 11, 4
SAMPLED = [2, 4, 8]
"""Step 2, and each fourth one that another follows."""
FILE = "test_plain_hooks.py"

Issued = tuple[str, int]
"""Kind and payload."""


class Script:
    """A training script with collectives of its own, which it counts: so it is the oracle.

    In each backward pass one of a gradient hook, after it the averaged loss, a barrier.
    """

    def __init__(self, ddp: Any, rank: int) -> None:
        self.ddp = ddp
        self.rank = rank
        self.issued: list[Counter[Issued]] = []
        first = next(iter(ddp.module.children()))
        first.weight.register_post_accumulate_grad_hook(self._in_backward)  # type: ignore[union-attr]

    def note(self, kind: str, size: int) -> None:
        self.issued[-1][kind, size] += 1

    def _in_backward(self, parameter: torch.Tensor) -> None:
        if self.issued:  # before the first bucket of a step it is none of that step's
            dist.all_reduce(torch.ones(8))
            self.note("all_reduce", 32)

    def step(self, number: int) -> None:
        self.ddp.zero_grad()
        self.issued.append(Counter())
        backward(self.ddp, self.rank, number)
        dist.all_reduce(torch.ones(3))
        self.note("all_reduce", 12)
        gathered = [torch.ones(5, dtype=torch.float64) for _ in range(2)]
        dist.all_gather(gathered, gathered[0].clone())
        self.note("all_gather", 40)
        dist.barrier()
        self.note("barrier", 0)


def _others(tracer: Tracer) -> dict[int, OtherCollectives]:
    return {one.step: one for one in tracer.records(OtherCollectives)}


def _of(record: OtherCollectives, of_ddp: bool = False) -> Counter[Issued]:
    own = [one for one in record.collectives if one.of_ddp == of_ddp]
    return Counter((one.name, one.wire_bytes or 0) for one in own)


@on(2)
def test_what_a_script_issues(rank: int) -> None:
    """All of it, of sampled steps alone, with times; no bucket, and DDP's broadcasts are DDP's."""
    for hook in (None, default_hooks.allreduce_hook):
        module = make_model()
        module.register_buffer("mean", torch.zeros(16))
        ddp = torch.nn.parallel.DistributedDataParallel(module, bucket_cap_mb=CAP_MB)
        with Tracer(error_every=EVERY) as tracer:
            instrument(ddp, hook, tracer=tracer)
            assert (ddp in hookless.models) == (hook is None)
            script = Script(ddp, rank)
            for number in range(MOST_STEPS):
                script.step(number)
            told, steps = _others(tracer), {one.step: one for one in tracer.steps()}
            losses = tracer.losses()
        assert list(told) == SAMPLED, hook
        for number, record in told.items():
            assert _of(record) == script.issued[number], (hook, number)
            assert set(_of(record, of_ddp=True)) == {("broadcast", 64)}
            assert record.time_ns == steps[number].first_ready_ns
            assert record.until_ns == steps[number + 1].first_ready_ns
            for one in record.collectives:
                assert record.time_ns < one.issued_ns < (one.done_ns or 0) < record.until_ns
                assert one.of_ddp or one.where.startswith(FILE), one
            assert {one.thread for one in record.collectives} == {"MainThread"}
            assert record.more == 0
        assert losses == {}
        assert anomalies(tracer) == []
        assert group_hooks.window is None


@on(2)
def test_what_is_not_listed(rank: int) -> None:
    """More than are listed are counted, with their bytes, and so are groups that nobody watches."""
    group = dist.new_group([0, 1])
    ddp = make_ddp(CAP_MB)
    with Tracer(error_every=EVERY) as tracer:
        instrument(ddp, tracer=tracer)  # its own group alone is watched, since it has no hook
        for number in range(4):
            backward(ddp, rank, number)
            dist.all_reduce(torch.ones(1), group=group)
            for _ in range(MOST_LISTED + 5):
                dist.all_reduce(torch.ones(1))
        (record,) = _others(tracer).values()
    dist.destroy_process_group(group)
    assert (len(record.collectives), record.more) == (MOST_LISTED, 5)
    assert (record.more_bytes, record.unseen_groups) == (20, 1)
