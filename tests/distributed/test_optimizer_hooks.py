"""Optimizer overlap on 2 real gloo ranks."""

from __future__ import annotations

import functools
import pickle
import random
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import hooktrace
from hooktrace import AllGather, AllReduce, Tracer
from hooktrace.hooks import OptimizerHookState, hook_then_optimizer
from hooktrace.hooks.default import allreduce_hook, fp16_compress_hook
from hooktrace.staging.groups import group_of
from hooktrace.staging.hook import staged
from tests.distributed.harness import on, scenario
from tests.distributed.models import anomalies, backward, gradients, make_ddp

pytestmark = pytest.mark.slow

several_buckets = functools.partial(make_ddp, bucket_cap_mb=0.001)

STEPS = 12

SGD = (torch.optim.SGD, {"lr": 0.003, "momentum": 0.9, "weight_decay": 0.01})

OPTIMIZERS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    f"{cls.__name__} {name}": (cls, {**options, **implementation})
    for cls, options in [
        SGD,
        (torch.optim.Adam, {"lr": 0.01, "weight_decay": 0.01, "amsgrad": True}),
        (torch.optim.AdamW, {"lr": 0.01}),
    ]
    for name, implementation in [("default", {}), ("fused", {"fused": True})]
}


@staged
def gathering_hook(state: Any, bucket: Any) -> Iterator[Any]:
    """Average into a tensor of its own, and leave another buffer in the bucket."""
    payload = bucket.buffer().to(torch.float16)
    bucket.set_buffer(payload)
    gathered = yield AllGather(payload, group_of(state))
    return gathered.float().mean(0)


@staged(multi_round=True)
def twice_hook(state: Any, bucket: Any) -> Iterator[Any]:
    """Average twice, after random delays that differ between ranks."""
    group = group_of(state)
    buffer = bucket.buffer()
    for _ in range(2):
        time.sleep(random.random() * 0.001)
        buffer = yield AllReduce(buffer / group.size(), group)
    return buffer


HOOKS: dict[str, Callable[..., Any]] = {
    "allreduce": allreduce_hook,
    "fp16": fp16_compress_hook,
    "torch's allreduce": default_hooks.allreduce_hook,
    "torch's fp16": default_hooks.fp16_compress_hook,
    "another tensor": gathering_hook,
    "multi-round": twice_hook,
}


def parameters(ddp: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in ddp.parameters()])


def equal_runs(left: list[torch.Tensor], right: list[torch.Tensor]) -> bool:
    """Return whether two runs went through the same bits, and went anywhere."""
    moved = not torch.equal(left[0], left[-1])
    return moved and len(left) == len(right) and all(map(torch.equal, left, right))


def run(
    ddp: DistributedDataParallel,
    rank: int,
    step: Callable[[], object] = lambda: None,
    steps: Iterable[int] = range(STEPS),
) -> list[torch.Tensor]:
    """Train with ``step`` after each backward; return parameters and gradients after each."""
    seen = []
    for number in steps:
        ddp.zero_grad()
        backward(ddp, rank, number)
        step()
        seen.append(torch.cat([parameters(ddp), gradients(ddp)]))
    return seen


def sequential(
    rank: int, hook: Callable[..., Any], cls: Any, options: dict[str, Any], **modes: Any
) -> list[torch.Tensor]:
    ddp = several_buckets(**modes)
    ddp.register_comm_hook(None, hook)
    return run(ddp, rank, cls(ddp.parameters(), **options).step)


def overlapped(
    rank: int, hook: Callable[..., Any], cls: Any, options: dict[str, Any], **modes: Any
) -> list[torch.Tensor]:
    ddp = several_buckets(**modes)
    state = OptimizerHookState.of(cls, ddp.parameters(), **options)
    ddp.register_comm_hook(None, hook_then_optimizer(hook, state))
    return run(ddp, rank)


@on(2)
@scenario(deadline_s=240)
def test_overlap_gives_the_bits_of_a_step_after_backward(rank: int) -> None:
    """Parameters and gradients of each step: hooks, optimizers and their implementations, modes."""
    cases: list[tuple[str, str, dict[str, bool]]] = [(h, "SGD default", {}) for h in HOOKS]
    cases += [("allreduce", o, {}) for o in OPTIMIZERS if o != "SGD default"]
    cases += [
        (hook, "SGD default", {mode: True})
        for hook in ("allreduce", "another tensor")
        for mode in ("static_graph", "gradient_as_bucket_view", "find_unused_parameters")
    ]
    for hook, optimizer, modes in cases:
        arguments = (rank, HOOKS[hook], *OPTIMIZERS[optimizer])
        found = overlapped(*arguments, **modes), sequential(*arguments, **modes)
        assert equal_runs(*found), (hook, optimizer, modes)


Build = tuple[DistributedDataParallel, Any, Callable[[], object]]


def overlap_or_not(ours: bool, ddp: DistributedDataParallel, params: Any = None) -> Build:
    """Return a model, who holds its optimizer's options, and what steps after a backward pass."""
    (cls, options), params = SGD, ddp.parameters() if params is None else params
    if not ours:
        ddp.register_comm_hook(None, allreduce_hook)
        optimizer = cls(params, **options)
        return ddp, optimizer, optimizer.step
    state = OptimizerHookState.of(cls, params, **options)
    ddp.register_comm_hook(None, hook_then_optimizer(allreduce_hook, state))
    return ddp, state, lambda: None


def groups_and_schedules(ours: bool, rank: int) -> list[torch.Tensor]:
    """Train with two parameter groups and a scheduler."""
    ddp = several_buckets()
    named = dict(ddp.named_parameters())
    groups: list[dict[str, Any]] = [
        {"params": [p for n, p in named.items() if "weight" in n]},
        {"params": [p for n, p in named.items() if "bias" in n], "weight_decay": 0.0, "lr": 0.001},
    ]
    ddp, owner, step = overlap_or_not(ours, ddp, groups)
    optimizers = owner.optimizers if ours else [owner]
    parts = [torch.optim.lr_scheduler.StepLR(o, 3, 0.5) for o in optimizers]
    return run(ddp, rank, lambda: [step(), *[part.step() for part in parts]])


def accumulation(ours: bool, rank: int) -> list[torch.Tensor]:
    """Accumulate two passes under no_sync before each third, which move nothing."""
    ddp, _, step = overlap_or_not(ours, several_buckets())
    seen = []
    for number in range(STEPS):
        ddp.zero_grad()
        before = parameters(ddp)
        with ddp.no_sync():
            backward(ddp, rank, 3 * number)
            backward(ddp, rank, 3 * number + 1)
        assert torch.equal(before, parameters(ddp))
        backward(ddp, rank, 3 * number + 2)
        step()
        seen.append(parameters(ddp))
    return seen


def out_of_data(ours: bool, rank: int) -> list[torch.Tensor]:
    """Run rank 0 out of data: its momentum, too, goes on as the others' does."""
    ddp, owner, step = overlap_or_not(ours, several_buckets())
    start = parameters(ddp)
    with ddp.join():
        run(ddp, rank, step, range(3 if rank == 0 else 6))
    if ours:
        buffers = [s["momentum_buffer"] for o in owner.optimizers for s in o.state.values()]
        momentum = torch.cat([b.flatten() for b in buffers])
        of_rank_0 = momentum.clone()
        dist.broadcast(of_rank_0, 0)
        assert torch.equal(momentum, of_rank_0)
    return [start, parameters(ddp)]


def channels_last(ours: bool, rank: int, *, view: bool = False) -> list[torch.Tensor]:
    """Train convolutions whose weights do not lie in the order of their shape."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 3))
    model = model.to(memory_format=torch.channels_last)
    ddp, _, step = overlap_or_not(
        ours, DistributedDataParallel(model, gradient_as_bucket_view=view)
    )
    seen = []
    for number in range(STEPS):
        torch.manual_seed(1000 * rank + number)
        ddp.zero_grad()
        images = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
        ddp(images).square().mean().backward()
        step()
        seen.append(parameters(ddp))
    return seen


WAYS: dict[str, Callable[[bool, int], list[torch.Tensor]]] = {
    "groups and schedulers": groups_and_schedules,
    "accumulated gradients": accumulation,
    "a rank without data": out_of_data,
    "channels last, views": functools.partial(channels_last, view=True),
}


@on(2)
def test_all_ways_of_training_give_these_bits(rank: int) -> None:
    """``bucket.gradients()`` reads channels-last gradients as contiguous; the step must not."""
    for name, train in WAYS.items():
        assert equal_runs(train(True, rank), train(False, rank)), name


@on(2)
def test_a_resumed_run_goes_on_with_the_same_bits(rank: int) -> None:
    """A new model and a new state take over in the middle."""
    for name in ("SGD default", "AdamW default"):
        cls, options = OPTIMIZERS[name]
        straight = overlapped(rank, allreduce_hook, cls, options)
        saved: bytes | None = None
        for steps in (range(STEPS // 2), range(STEPS // 2, STEPS)):
            ddp = several_buckets()
            state = OptimizerHookState.of(cls, ddp.parameters(), **options)
            # Its first pass has other buckets; the sum over two ranks does not depend on them.
            ddp.register_comm_hook(None, hook_then_optimizer(allreduce_hook, state))
            if saved is not None:
                model, optimizer = pickle.loads(saved)
                ddp.load_state_dict(model)
                state.load_state_dict(optimizer)
            seen = run(ddp, rank, steps=steps)
            saved = pickle.dumps((ddp.state_dict(), state.state_dict()))
        assert equal_runs(seen, straight[STEPS // 2 :]), name


class HalfUsed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used = nn.Linear(8, 8)
        self.unused = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.used(x)


@on(2)
def test_unused_parameters_are_stepped_with_zeros(rank: int) -> None:
    """Weight decay moves them, though DDP leaves their ``grad`` alone."""
    torch.manual_seed(0)
    ddp = DistributedDataParallel(HalfUsed(), find_unused_parameters=True)
    options = {"lr": 0.5, "weight_decay": 0.5}
    state = OptimizerHookState.of(torch.optim.SGD, ddp.parameters(), **options)
    ddp.register_comm_hook(None, hook_then_optimizer(allreduce_hook, state))
    start = ddp.module.unused.weight.detach().clone()
    backward(ddp, rank, 0, width=8)
    weight = ddp.module.unused.weight
    assert torch.equal(weight, start - 0.5 * (0.5 * start))
    assert weight.grad is None


@on(2)
def test_every_bucket_is_recorded(rank: int) -> None:
    """A traced overlap has the inner hook's stages, and the same bits."""
    with Tracer() as tracer:
        ddp = several_buckets()
        state = OptimizerHookState.of(SGD[0], ddp.parameters(), **SGD[1])
        hooktrace.instrument(ddp, hook_then_optimizer(fp16_compress_hook, state), tracer=tracer)
        seen = run(ddp, rank)
        steps, found = tracer.steps(), tracer.buckets()
    assert equal_runs(seen, sequential(rank, fp16_compress_hook, *SGD))
    assert {b.hook for b in found} == {"hook_then_optimizer(fp16_compress_hook)"}
    counts = [sum(b.step == number for b in found) for number in range(STEPS)]
    assert counts == [step.bucket_count for step in steps]
    assert counts[-1] >= 6
    for bucket in found:
        names = [
            s.name for s in bucket.stages if s.name not in {"check", "serialization_wait", "queue"}
        ]
        assert names == ["compress", "wire", "decompress"]
    assert anomalies(tracer) == []


class Failing(torch.optim.SGD):
    def step(self, closure: Any = None) -> None:
        raise ArithmeticError("no step today")


@on(2)
def test_what_cannot_be_stepped_is_named(rank: int) -> None:
    """Errors out of backward name the hook and say what to do."""
    linear, sparse = nn.Linear(4, 4), nn.Embedding(8, 4, sparse=True)
    for model, state, data, said in (
        (
            linear,
            OptimizerHookState.of(Failing, linear.parameters(), lr=0.1),
            torch.ones(2, 4),
            "stage decompress: ArithmeticError: no step today",
        ),
        (
            sparse,
            OptimizerHookState.of(torch.optim.SGD, sparse.parameters(), lr=0.1),
            torch.tensor([1, 2]),
            "stage compress: TypeError: .* are sparse; call optimizer.step\\(\\) after backward",
        ),
    ):
        ddp = DistributedDataParallel(model)
        ddp.register_comm_hook(None, hook_then_optimizer(allreduce_hook, state))
        name = r"hook 'hook_then_optimizer\(allreduce_hook\)', bucket 0, "
        with pytest.raises(Exception, match=name + said):
            ddp(data).sum().backward()
