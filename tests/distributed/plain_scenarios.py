"""What the ranks do in ``test_plain_hooks.py``: hooks that are seen from their groups alone.

A twin is a staged hook that does the same, whose stages its own operations tell.
"""

import gc
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

from hooktrace import Tracer, hooks, instrument, staged, trace
from hooktrace.staging import group_hooks
from hooktrace.staging.collectives import AllGather, AllReduce, AllToAll, Broadcast
from tests.distributed.models import backward, gradients, heard, make_ddp, make_model

STEPS = 4
CAP_MB = 0.004
"""A bucket for each layer."""
Wire = tuple[str | None, int | None, str | None]
Told = list[tuple[tuple[str, ...], list[Wire], int | None, float | None]]


def _gathered(state: Any, bucket: Any) -> Any:
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


TWINS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "allreduce": (default_hooks.allreduce_hook, hooks.allreduce_hook),
    "fp16": (default_hooks.fp16_compress_hook, hooks.fp16_compress_hook),
    "bf16": (default_hooks.bf16_compress_hook, hooks.bf16_compress_hook),
    "all-gather": (_gathered, staged(_gathered_staged)),
    "all-to-all": (_exchanged, staged(_exchanged_staged)),
    "two rounds": (_two_rounds, staged(multi_round=True)(_two_rounds_staged)),
}


def _records(hook: Callable[..., Any], rank: int, **options: Any) -> tuple[Told, torch.Tensor]:
    """Return what is told of each bucket of the last step, and all gradients of that step."""
    ddp = make_ddp(CAP_MB)
    with Tracer(**options) as tracer:
        instrument(ddp, hook, tracer=tracer)
        for step in range(STEPS):
            ddp.zero_grad()
            backward(ddp, rank, step)
        tracer.flush()
        _, buckets = tracer._recent.steps()[-1]
    told = [
        (
            tuple(stage.name for stage in b.stages if stage.name not in ("queue", "turn")),
            [(s.collective, s.wire_bytes, s.dtype) for s in b.stages if s.name == "wire"],
            *(b.wire_bytes, b.bus_bytes),
        )
        for b in buckets
    ]
    for bucket in buckets:  # one after another, within the call
        ends = [bucket.ready_ns, *(s.end_ns for s in bucket.stages), bucket.done_ns]
        assert ends == sorted(ends)
        assert all(s.start_ns <= s.end_ns for s in bucket.stages)
    dist.barrier()
    return told, gradients(ddp)


def twins(rank: int) -> dict[str, tuple[Told, Told, bool]]:
    """Return what is told of each plain hook, of its twin, and whether tracing changed a bit."""
    found = {}
    for name, (plain, twin) in TWINS.items():
        ddp = make_ddp(CAP_MB)
        ddp.register_comm_hook(None, lambda state, bucket, hook=plain: hook(state, bucket))
        for step in range(STEPS):
            ddp.zero_grad()
            backward(ddp, rank, step)
        told, traced = _records(plain, rank)
        found[name] = told, _records(twin, rank)[0], torch.equal(traced, gradients(ddp))
    return found


def _scattered(state: Any, bucket: Any) -> Any:
    mine, ranks = bucket.buffer(), dist.get_world_size()
    part = mine.new_empty(mine.numel() // ranks)
    dist.reduce_scatter_tensor(part, mine)
    whole = torch.empty_like(mine)
    work: Any = dist.all_gather_into_tensor(whole, part, async_op=True)
    return work.get_future().then(lambda _: whole)


def without_an_end(rank: int) -> Told:
    """Return what is told of a hook of whose first collective gloo never says that it has ended."""
    return _records(_scattered, rank)[0]


def at_once(rank: int) -> Told:
    """Return what is told of a hook whose two collectives are under way together."""

    def halves(state: Any, bucket: Any) -> Any:
        tensor = bucket.buffer().div_(dist.get_world_size())
        works: list[Any] = [dist.all_reduce(half, async_op=True) for half in tensor.chunk(2)]
        futures = [work.get_future() for work in works]
        return torch.futures.collect_all(futures).then(lambda _: tensor)

    return _records(halves, rank)[0]


class _Summed(torch.autograd.Function):
    """An all-reduce in the backward pass that is the script's own."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *given: torch.Tensor) -> Any:
        total = given[0].clone()
        dist.all_reduce(total)
        return total


class _Summing(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _Summed.apply(x)  # type: ignore[no-any-return]


def among_others(rank: int) -> tuple[Told, set[int | None]]:
    """Return what is told where the script has collectives of its own in the backward pass.

    Then the wire bytes of each step of a second model of the same layers, in the same group.
    """
    layers = list(make_model())
    model = torch.nn.Sequential(*[m for layer in layers for m in (layer, _Summing())])
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
    told = [
        (
            *((), [(s.collective, s.wire_bytes, s.dtype) for s in b.stages if s.name == "wire"]),
            *(b.wire_bytes, b.bus_bytes),
        )
        for b in of_one
    ]
    return told, of_other


def taken_off(rank: int) -> dict[str, Any]:
    """Return what is left of hooktrace in groups whose models have gone, and what others see."""
    group: Any = dist.new_group()
    theirs: list[int] = []
    group.register_post_hook(1, lambda args: theirs.append(args.op_id))
    ddp: Any = torch.nn.parallel.DistributedDataParallel(make_model(), process_group=group)
    with Tracer() as tracer:
        instrument(ddp, default_hooks.allreduce_hook, group, tracer=tracer)
        backward(ddp, rank, 0)
        watched = len(group_hooks.watched)
    seen = len(theirs)
    dist.barrier()
    del ddp
    gc.collect()
    left = len(group_hooks.watched)
    dist.all_reduce(torch.ones(1), group=group)
    went_on = len(theirs) > seen > 0
    alive = weakref.ref(group)
    dist.barrier()
    dist.destroy_process_group(group)
    del group
    gc.collect()
    return {"watched": watched, "left": left, "others": went_on, "alive": alive() is not None}


class _FailingClock:
    """Raises in each collective of a hook's, where it is asked for by the group's hooks."""

    def __init__(self) -> None:
        self.raising = False

    def __call__(self) -> int:
        if self.raising:
            raise OSError("no time")
        return time.perf_counter_ns()


def failing_clock(rank: int) -> tuple[bool, int]:
    """Return whether training goes on as it was, and how many calls were lost, by count."""
    clock = _FailingClock()

    def hook(state: Any, bucket: Any) -> Any:
        clock.raising = True
        try:
            return default_hooks.allreduce_hook(state, bucket)
        finally:
            clock.raising = False

    plain = make_ddp(CAP_MB)
    plain.register_comm_hook(None, default_hooks.allreduce_hook)
    ddp = make_ddp(CAP_MB)
    with heard(), Tracer(clock=clock, error_every=0, align_clocks=False) as tracer:
        ddp.register_comm_hook(None, trace(hook, tracer=tracer))
        for step in range(STEPS):
            for model in (ddp, plain):
                model.zero_grad()
                backward(model, rank, step)
        tracer.flush()
        lost = tracer.losses().get("stamp_failed", 0)
    dist.barrier()
    return torch.equal(gradients(ddp), gradients(plain)), lost


def sparse(rank: int) -> tuple[set[int | None], set[str | None]]:
    """Return the wire bytes of the steps of a model with sparse gradients, and why not known."""
    model = torch.nn.Sequential(torch.nn.Embedding(10, 4, sparse=True), torch.nn.Linear(4, 4))
    ddp = torch.nn.parallel.DistributedDataParallel(model)
    with heard(), Tracer(error_every=0) as tracer:
        instrument(ddp, default_hooks.allreduce_hook, tracer=tracer)
        for _ in range(STEPS):
            ddp(torch.tensor([rank, 3])).sum().backward()
        tracer.flush()
        steps = tracer.steps()
    dist.barrier()
    return {step.wire_bytes for step in steps}, {step.sent_unknown for step in steps}


def kept(rank: int) -> tuple[int, int]:
    """Return how many collectives are held after so many steps, without the cyclic collector."""
    ddp = make_ddp(CAP_MB)
    gc.collect()
    gc.disable()
    try:
        with Tracer(error_every=0) as tracer:
            instrument(ddp, default_hooks.allreduce_hook, tracer=tracer)
            for step in range(50):
                backward(ddp, rank, step)
            tracer.flush()
            buckets = tracer.steps()[-1].bucket_count
            held = sum(isinstance(o, group_hooks.SeenCollective) for o in gc.get_objects())
    finally:
        gc.enable()
    dist.barrier()
    return held, buckets


def finalised_by_hand(rank: int) -> list[tuple[int | None, int]]:
    """Return what is exposed of steps that are finalised long after their buckets have arrived.

    With each, how long the hook's call for the last bucket took, which nothing hides.
    """
    ddp: Any = make_ddp(CAP_MB)
    ddp.require_manual_backward_finalization = True
    with Tracer(error_every=0) as tracer:
        instrument(ddp, hooks.allreduce_hook, tracer=tracer)
        for step in range(STEPS):
            ddp.zero_grad()
            backward(ddp, rank, step)
            dist.barrier()  # so that all buckets of both ranks are there
            while tracer.models.count_in_flight():
                time.sleep(0.001)
            ddp.finalize_backward()
        tracer.flush()
        found = [
            (step.exposed_ns, buckets[-1].launched_ns - buckets[-1].ready_ns)
            for step, buckets in tracer._recent.steps()
        ]
    dist.barrier()
    return found


def with_new_buffers(rank: int) -> tuple[list[tuple[int, int]], int, bool]:
    """Return generation and buckets of each step under lazy allocation, and the buffers kept.

    Then whether its gradients are those of a model that has its buffers all the time.
    """
    usual, lazy = make_ddp(CAP_MB), make_ddp(CAP_MB, lazy_bucket_allocation=True)
    usual.register_comm_hook(None, default_hooks.allreduce_hook)
    with Tracer(error_every=0) as tracer:
        traced = instrument(lazy, default_hooks.allreduce_hook, tracer=tracer)
        for step in range(3 * STEPS):
            for ddp in (usual, lazy):
                ddp.zero_grad()
                backward(ddp, rank, step)
        tracer.flush()
        steps = [(step.generation, step.bucket_count) for step in tracer.steps()]
    dist.barrier()
    same = torch.equal(gradients(usual), gradients(lazy))
    return steps, len(traced._layout.by_buffer), same
