"""Rounds of multi-round hooks beside what else goes on in a job; unit tests: staging."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

from hooktrace import AllGather, ReduceScatter, staged
from hooktrace.staging.groups import group_of
from tests.distributed.harness import on, scenario
from tests.distributed.models import Summed, backward, gradients, make_ddp

pytestmark = pytest.mark.slow

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


class Expert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(32, 32)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        summed: torch.Tensor = Summed.apply(torch.relu(self.layer(value)))  # type: ignore[no-untyped-call]
        return summed


@on(2)
@scenario(apart=True)
def test_a_model_with_collectives_in_its_backward(rank: int) -> None:
    """Rounds do not pair up with them: gloo would end the process."""
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
    assert (seen[1] - seen[0]).abs().max().item() == 0.0


@on(2)
@scenario(apart=True)
def test_two_models_in_two_threads_on_two_groups(rank: int) -> None:
    """Neither waits for the other's turn, which on the other rank would come first."""
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
    assert moved == [True, True]
