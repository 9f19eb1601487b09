"""Training runs that step an optimizer in the hook or after backward, for the scenarios."""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

from hooktrace import AllGather, AllReduce
from hooktrace.hooks import OptimizerHookState, hook_then_optimizer
from hooktrace.hooks.default import allreduce_hook, fp16_compress_hook
from hooktrace.staging.groups import group_of
from hooktrace.staging.hook import staged
from tests.distributed.models import backward, gradients, make_ddp

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
    for name, implementation in [
        ("default", {}),
        ("foreach", {"foreach": True}),
        ("fused", {"fused": True}),
    ]
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
    """Return all parameters, flat."""
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
    """Step after backward."""
    ddp = several_buckets(**modes)
    ddp.register_comm_hook(None, hook)
    return run(ddp, rank, cls(ddp.parameters(), **options).step)


def overlapped(
    rank: int, hook: Callable[..., Any], cls: Any, options: dict[str, Any], **modes: Any
) -> list[torch.Tensor]:
    """Step in the hook."""
    ddp = several_buckets(**modes)
    state = OptimizerHookState.of(cls, ddp.parameters(), **options)
    ddp.register_comm_hook(None, hook_then_optimizer(hook, state))
    return run(ddp, rank)


def message_of(action: Callable[[], object]) -> tuple[str, str]:
    """Return type and message of the exception that an action raises."""
    try:
        action()
    except Exception as error:
        return type(error).__name__, str(error)
    return "", ""
