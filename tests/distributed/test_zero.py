"""ZeRO overlap on 2 real gloo ranks."""

from __future__ import annotations

import contextlib
import functools
import itertools
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
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
from tests.distributed.harness import on
from tests.distributed.test_optimizer_hooks import (
    SGD,
    STEPS,
    equal_runs,
    message_of,
    parameters,
    run,
    several_buckets,
)
from tests.versions import ZERO_OVERLAPS_ON_FAKES

pytestmark = pytest.mark.slow

FACTORIES = (hook_with_zero_step, hook_with_zero_step_interleaved)


ZERO_ERRORS = {
    "gloo": ("RuntimeError", "gloo backend (torch refuses it too); use NCCL"),
    "no overlap": ("ValueError", "with overlap_with_ddp=True"),
    "groups": ("ValueError", "the ZeroRedundancyOptimizer has 2; make it of ddp.parameters()"),
    "no DDP": ("TypeError", "needs a DistributedDataParallel model, not a Sequential"),
    "no ZeRO": ("TypeError", "not a SGD; for another optimizer use hook_then_optimizer"),
    "no hook": ("TypeError", "needs a hook, a callable that takes (state, bucket), not a int"),
    "traced": ("TypeError", "trace the outermost hook"),
    "channels_last": ("ValueError", "takes contiguous parameters, and one of shape (8, 3, 3, 3)"),
}


@on(2)
def test_zero_is_refused_before_registration(rank: int) -> None:
    """Both hooks name themselves, what is wrong, and the remedy."""
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
        for name, case in cases.items():
            exception, reason = ZERO_ERRORS[name]
            hook = {"gloo": "fp16_compress_hook", "no hook": "int"}.get(name, "allreduce_hook")
            for factory in FACTORIES:
                raised, message = message_of(functools.partial(factory, *case))
                assert raised == exception
                assert message.startswith(f"{factory.__name__}({hook}) ")
                assert reason in message


@staged
def gathering_copy_hook(state: Any, bucket: Any) -> Iterator[Any]:
    """Return the sum in a tensor of its own, with garbage in the bucket and its buffer."""
    buffer = bucket.buffer()
    total = yield AllReduce(buffer.clone(), group_of(state))
    buffer.fill_(99)
    bucket.set_buffer(torch.full_like(buffer, 77))
    return total


@pytest.mark.skipif(not ZERO_OVERLAPS_ON_FAKES, reason="this torch lets it on NCCL only")
@on(2)
def test_zero_steps_where_torch_lets_it(rank: int) -> None:
    """On a backend that is not refused it trains as a step after backward does, from step 2 on.

    In groups of one rank on torch's fake backend, whose collectives do nothing.  A sum over one
    rank needs none, so results are exact; nothing is said about a real backend.
    """
    from torch.testing._internal.distributed import fake_pg  # noqa: F401  # registers the backend

    alone = [dist.new_group([other], backend="fake") for other in range(2)][rank]
    for factory, hook, shard in itertools.product(
        FACTORIES, (allreduce_hook, gathering_copy_hook), (False, True)
    ):
        if rank == 0:
            _train_with_zero(alone, factory, hook, shard)
            continue
        # torch takes its global rank, 1, for its rank in the group, 0, and would step nothing.
        said = r"ranks 0, 1, ... in order, and that of the ZeroRedundancyOptimizer has \[1\]"
        with pytest.raises(ValueError, match=said):
            _train_with_zero(alone, factory, hook, shard)


def _train_with_zero(
    group: dist.ProcessGroup, factory: Callable[..., Any], hook: Callable[..., Any], shard: bool
) -> None:
    cls, options = SGD
    ddp = several_buckets(process_group=group)
    zero = ZeroRedundancyOptimizer(
        ddp.parameters(), cls, process_group=group, overlap_with_ddp=True, **options
    )
    made = factory(hook, ddp, zero, shard)
    assert made.__name__ == made.__qualname__
    assert made.__name__.startswith("hook_with_zero_step")
    assert message_of(functools.partial(pickle.dumps, made))[0]
    with Tracer() as tracer:
        ddp.register_comm_hook(group, hooktrace.trace(made, tracer=tracer))
        start = parameters(ddp)
        seen = run(ddp, 0)
        assert len(tracer.steps()) == STEPS
    reference = several_buckets(process_group=group)
    reference.register_comm_hook(group, allreduce_hook)
    optimizer = cls(reference.parameters(), **options)
    run(reference, 0, steps=range(2))
    expected = run(reference, 0, optimizer.step, range(2, STEPS))
    assert torch.equal(seen[1][: start.numel()], start)
    assert equal_runs(seen[2:], expected)
