"""What the ranks do in ``test_optimizer_hooks.py`` with torch's ZeroRedundancyOptimizer."""

from __future__ import annotations

import contextlib
import functools
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

import hooktrace
from hooktrace import AllReduce, Tracer
from hooktrace.hooks.default import allreduce_hook, fp16_compress_hook
from hooktrace.hooks.zero import hook_with_zero_step, hook_with_zero_step_interleaved
from hooktrace.staging.groups import group_of
from hooktrace.staging.hook import staged
from tests.distributed.optimizer_runs import (
    SGD,
    STEPS,
    equal_runs,
    message_of,
    parameters,
    run,
    several_buckets,
)

FACTORIES = (hook_with_zero_step, hook_with_zero_step_interleaved)


def zero_errors(rank: int) -> dict[str, list[tuple[str, str]]]:
    """Return what each way of asking for ZeRO raises on real gloo ranks, before registration."""
    ddp = several_buckets()
    channels = DistributedDataParallel(nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last))

    def zero(
        params: Any = None, overlap_with_ddp: bool = True, **options: Any
    ) -> ZeroRedundancyOptimizer:
        params = ddp.parameters() if params is None else params
        cls = torch.optim.SGD
        return ZeroRedundancyOptimizer(
            params, cls, overlap_with_ddp=overlap_with_ddp, lr=0.1, **options
        )

    first, *others = ddp.parameters()
    with contextlib.closing(Tracer()) as tracer:
        cases: dict[str, tuple[Any, Any, Any]] = {
            "gloo": (fp16_compress_hook, ddp, zero()),
            "no overlap": (allreduce_hook, ddp, zero(overlap_with_ddp=False)),
            "groups": (allreduce_hook, ddp, zero([{"params": [first]}, {"params": others}])),
            "no DDP": (allreduce_hook, ddp.module, zero()),
            "no ZeRO": (allreduce_hook, ddp, torch.optim.SGD(ddp.parameters(), lr=0.1)),
            "no hook": (3, ddp, zero()),
            "traced": (hooktrace.trace(allreduce_hook, tracer=tracer), ddp, zero()),
            "channels_last": (allreduce_hook, channels, zero(channels.parameters())),
        }
        return {
            name: [message_of(functools.partial(factory, *case)) for factory in FACTORIES]
            for name, case in cases.items()
        }


def zero_alone(rank: int) -> dict[str, Any]:
    """Step with ZeRO in groups of one rank on torch's fake backend, whose collectives do nothing.

    A sum over one rank needs none, so results are exact; nothing is said about a real backend.
    """
    from torch.testing._internal.distributed import fake_pg  # noqa: F401  # registers the backend

    alone = [dist.new_group([other], backend="fake") for other in range(2)][rank]
    cases = [
        (factory, hook, shard)
        for factory in FACTORIES
        for hook in (allreduce_hook, gathering_copy_hook)
        for shard in (False, True)
    ]
    if rank != 0:
        return {
            str(case): message_of(functools.partial(_train_with_zero, alone, *case))
            for case in cases
        }
    return dict(_train_with_zero(alone, *case) for case in cases)


def _train_with_zero(
    group: dist.ProcessGroup, factory: Callable[..., Any], hook: Callable[..., Any], shard: bool
) -> tuple[str, dict[str, Any]]:
    cls, options = SGD
    ddp = several_buckets(process_group=group)
    zero = ZeroRedundancyOptimizer(
        ddp.parameters(), cls, process_group=group, overlap_with_ddp=True, **options
    )
    made = factory(hook, ddp, zero, shard)
    with Tracer() as tracer:
        ddp.register_comm_hook(group, hooktrace.trace(made, tracer=tracer))
        start = parameters(ddp)
        seen = run(ddp, 0)
        recorded = len(tracer.steps())
    reference = several_buckets(process_group=group)
    reference.register_comm_hook(group, allreduce_hook)
    optimizer = cls(reference.parameters(), **options)
    run(reference, 0, steps=range(2))
    expected = run(reference, 0, optimizer.step, range(2, STEPS))
    return f"{made.__qualname__} {shard}", {
        "named alike": made.__name__ == made.__qualname__,
        "first two step nothing": torch.equal(seen[1][: start.numel()], start),
        "same": equal_runs(seen[2:], expected),
        "steps recorded": recorded,
        "pickles": message_of(functools.partial(pickle.dumps, made))[0] == "",
    }


@staged
def gathering_copy_hook(state: Any, bucket: Any) -> Iterator[Any]:
    """Return the sum in a tensor of its own, with garbage in the bucket and its buffer."""
    buffer = bucket.buffer()
    total = yield AllReduce(buffer.clone(), group_of(state))
    buffer.fill_(99)
    bucket.set_buffer(torch.full_like(buffer, 77))
    return total
