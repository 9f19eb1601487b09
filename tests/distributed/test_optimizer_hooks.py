"""Optimizer overlap on 2 real gloo ranks: the bits of a step after backward."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch
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
ADAM = (torch.optim.Adam, {"lr": 0.01, "weight_decay": 0.01, "amsgrad": True})
ADAMW = (torch.optim.AdamW, {"lr": 0.01})

Optimizer = tuple[type[torch.optim.Optimizer], dict[str, Any]]


@staged
def gathering_hook(state: Any, bucket: Any) -> Iterator[Any]:
    """Average into a tensor of its own, and leave another buffer in the bucket."""
    payload = bucket.buffer().to(torch.float16)
    bucket.set_buffer(payload)
    gathered = yield AllGather(payload, group_of(state))
    return gathered.float().mean(0)


@staged(multi_round=True)
def twice_hook(state: Any, bucket: Any) -> Iterator[Any]:
    group = group_of(state)
    buffer = bucket.buffer()
    for _ in range(2):
        buffer = yield AllReduce(buffer / group.size(), group)
    return buffer


CASES: tuple[tuple[Callable[..., Any], Optimizer, dict[str, bool]], ...] = (
    *((hook, SGD, {}) for hook in (fp16_compress_hook, gathering_hook, twice_hook)),
    *((hook, SGD, {}) for hook in (default_hooks.allreduce_hook, default_hooks.fp16_compress_hook)),
    *((allreduce_hook, one, {}) for one in (SGD, ADAM, ADAMW, (SGD[0], SGD[1] | {"fused": True}))),
    (allreduce_hook, SGD, {"static_graph": True}),
    (gathering_hook, SGD, {"gradient_as_bucket_view": True}),
    (allreduce_hook, SGD, {"gradient_as_bucket_view": True, "find_unused_parameters": True}),
)


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
    train: Callable[..., Any] = backward,
) -> list[torch.Tensor]:
    """Train with ``step`` after each backward; return parameters and gradients after each."""
    seen = []
    for number in steps:
        ddp.zero_grad()
        train(ddp, rank, number)
        step()
        seen.append(torch.cat([parameters(ddp), gradients(ddp)]))
    return seen


def overlap_or_not(
    ours: bool,
    ddp: DistributedDataParallel,
    optimizer: Optimizer = SGD,
    hook: Callable[..., Any] = allreduce_hook,
) -> Callable[[], object]:
    """Register a model's hook; return what steps after a backward pass."""
    cls, options = optimizer
    if not ours:
        ddp.register_comm_hook(None, hook)
        return cls(ddp.parameters(), **options).step  # type: ignore[return-value]
    state = OptimizerHookState.of(cls, ddp.parameters(), **options)
    ddp.register_comm_hook(None, hook_then_optimizer(hook, state))
    return lambda: None


def accumulate(ddp: DistributedDataParallel, rank: int, number: int) -> None:
    """Accumulate two passes under no_sync before a third, which move nothing."""
    before = parameters(ddp)
    with ddp.no_sync():
        backward(ddp, rank, 3 * number)
        backward(ddp, rank, 3 * number + 1)
    assert torch.equal(before, parameters(ddp))
    backward(ddp, rank, 3 * number + 2)


def convolutions(**modes: bool) -> DistributedDataParallel:
    """Return a model whose weights ``bucket.gradients()`` reads in another order than theirs."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 3))
    return DistributedDataParallel(model.to(memory_format=torch.channels_last), **modes)


def see(ddp: DistributedDataParallel, rank: int, number: int) -> None:
    """Make the pass of some images."""
    torch.manual_seed(1000 * rank + number)
    images = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    ddp(images).square().mean().backward()


@on(2)
@scenario(deadline_s=240)
def test_overlap_gives_the_bits_of_a_step_after_backward(rank: int) -> None:
    """Parameters and gradients of each step: hooks, optimizers, DDP's modes, ways of training."""
    ways = [(several_buckets, backward, *case) for case in CASES]
    ways.append((several_buckets, accumulate, allreduce_hook, SGD, {}))
    ways.append((convolutions, see, allreduce_hook, SGD, {"gradient_as_bucket_view": True}))
    for make, train, hook, optimizer, modes in ways:
        found = []
        for ours in (True, False):
            ddp = make(**modes)
            step = overlap_or_not(ours, ddp, optimizer, hook)
            found.append(run(ddp, rank, step, train=train))
        assert equal_runs(*found), (train, hook, optimizer, modes)


@on(2)
def test_a_traced_and_resumed_run_goes_on_with_the_same_bits(rank: int) -> None:
    """A new model and a new state take over in the middle; records have the inner hook's stages."""
    ddp = several_buckets()
    straight, seen = run(ddp, rank, overlap_or_not(False, ddp, ADAMW)), []
    saved: bytes | None = None
    with Tracer() as tracer:
        for steps in (range(STEPS // 2), range(STEPS // 2, STEPS)):
            ddp = several_buckets()
            state = OptimizerHookState.of(ADAMW[0], ddp.parameters(), **ADAMW[1])
            # Its first pass has other buckets; the sum over two ranks does not depend on them.
            hooktrace.instrument(ddp, hook_then_optimizer(allreduce_hook, state), tracer=tracer)
            if saved is not None:
                model, optimizer = pickle.loads(saved)
                ddp.load_state_dict(model)
                state.load_state_dict(optimizer)
            seen += run(ddp, rank, steps=steps)
            saved = pickle.dumps((ddp.state_dict(), state.state_dict()))
        found = tracer.buckets()
    assert equal_runs(seen, straight)
    assert {b.hook for b in found} == {"hook_then_optimizer(allreduce_hook)"}
    for bucket in found:
        names = [s.name for s in bucket.stages if s.name not in {"check", "queue"}]
        assert names == ["compress", "wire", "decompress"]
    assert anomalies(tracer) == []
