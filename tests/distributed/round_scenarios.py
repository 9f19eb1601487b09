"""What ranks do in ``test_round_groups.py``: rounds among other collectives and threads."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

from hooktrace import AllGather, ReduceScatter, staged
from hooktrace.staging import groups
from hooktrace.staging.groups import group_of
from tests.distributed.harness import scenario
from tests.distributed.models import backward, gradients, make_ddp

STEPS = 10


@staged(multi_round=True)
def two_rounds(state: Any, bucket: Any) -> Iterator[Any]:
    """Average through a reduce-scatter and an all-gather, the second at a random time."""
    group = group_of(state)
    buffer = bucket.buffer()
    padded = nn.functional.pad(buffer / group.size(), (0, -buffer.numel() % group.size()))
    part = yield ReduceScatter(padded, group)
    time.sleep(random.Random(group.rank() * 7 + bucket.index()).random() * 0.002)
    return (yield AllGather(part, group)).flatten()[: buffer.numel()]


class _Summed(torch.autograd.Function):
    """The identity, whose gradient is summed over the ranks, as between experts."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
        return value

    @staticmethod
    def backward(ctx: Any, *gradient: torch.Tensor) -> torch.Tensor:
        total = gradient[0].clone()
        dist.all_reduce(total)
        return total


class Expert(nn.Module):
    """A layer with a collective of its own in backward."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(32, 32)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Return the layer's output."""
        summed: torch.Tensor = _Summed.apply(torch.relu(self.layer(value)))  # type: ignore[no-untyped-call]
        return summed


@scenario(apart=True)
def collectives_in_backward(rank: int) -> float:
    """Return the largest difference from an all-reduce, over a model that communicates itself."""
    seen = []
    for hook in (default_hooks.allreduce_hook, two_rounds):
        torch.manual_seed(0)
        model = nn.Sequential(*[Expert() for _ in range(8)])
        ddp = DistributedDataParallel(model, bucket_cap_mb=0.005)
        ddp.register_comm_hook(None, hook)
        steps = []
        for step in range(STEPS):
            ddp.zero_grad()
            backward(ddp, rank, step)
            steps.append(gradients(ddp).clone())
        seen.append(torch.stack(steps))
    return (seen[1] - seen[0]).abs().max().item()


@scenario(apart=True, deadline_s=60)
def connected_crosswise(rank: int) -> list[int]:
    """Return the sizes of two round groups whose threads each wait for the other rank's second."""
    both = [dist.new_group(list(range(dist.get_world_size()))) for _ in range(2)]
    both = both[:: 1 - 2 * rank]  # the other order on rank 1
    sizes: list[int] = []

    def connect(group: dist.ProcessGroup) -> None:
        sizes.append(groups.round_group(group, torch.empty(1)).size())

    first, second = [threading.Thread(target=connect, args=(group,)) for group in both]
    first.start()
    while not _is_in(first, groups._connect):
        time.sleep(0.001)
    dist.barrier()
    second.start()
    first.join()
    second.join()
    return sizes


def _is_in(thread: threading.Thread, function: Any) -> bool:
    frame = sys._current_frames().get(thread.ident or 0)
    return frame is not None and frame.f_code is function.__code__


@scenario(apart=True, deadline_s=60)
def forked_child(rank: int) -> int | None:
    """Return how a child ends that is forked beside a round group, as workers of a data loader."""
    groups.round_group(dist.group.WORLD, torch.empty(1))  # type: ignore[arg-type]
    child = os.fork()
    if not child:
        os._exit(0)
    for _ in range(2000):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


@scenario(apart=True)
def two_threads(rank: int) -> list[bool]:
    """Train two models on two groups in two threads, which take turns differently on each rank."""
    groups = [dist.new_group(list(range(dist.get_world_size()))) for _ in range(2)]
    models = [make_ddp(process_group=group) for group in groups]
    for group, ddp in zip(groups, models, strict=True):
        ddp.register_comm_hook(group, two_rounds)
    moved = [False, False]

    def train(which: int) -> None:
        for step in range(STEPS):
            if (which + rank) % 2:
                time.sleep(0.002)
            models[which].zero_grad()
            backward(models[which], rank, step)
        moved[which] = bool(gradients(models[which]).abs().sum() > 0)

    threads = [threading.Thread(target=train, args=(which,)) for which in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return moved
