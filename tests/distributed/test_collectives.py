"""Every kind of collective, in hooks of many rounds, beside what else goes on in a job."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

import hooktrace
from hooktrace import AllGather, AllToAll, Broadcast, ReduceScatter, Tracer, trace
from hooktrace.staging.groups import group_of
from tests.distributed.harness import on, scenario
from tests.distributed.models import Summing, make_model, train
from tests.distributed.test_training import MODES

pytestmark = pytest.mark.slow


def _nap(seed: int) -> None:
    """Take a random time: chains of different buckets must not depend on it."""
    time.sleep(random.Random(seed).random() * 0.002)


@hooktrace.staged(multi_round=True)
def every_collective(state: Any, bucket: Any) -> Iterator[Any]:
    """Average through a reduce-scatter and an all-gather, and check the others on the way."""
    group = group_of(state)
    ranks, rank = group.size(), group.rank()
    buffer = bucket.buffer()
    padded = nn.functional.pad(buffer / ranks, (0, -buffer.numel() % ranks))
    part = yield ReduceScatter(padded, group)
    _nap(rank * 7 + bucket.index())
    parts = yield AllGather(part, group)
    # A size that depends on the bucket: pairing two buckets' collectives up wrongly shows.
    sent = torch.arange(float(ranks * (bucket.index() + 1))) + 100 * rank
    received = yield AllToAll(sent, group)
    expected = [
        100 * other + rank * (bucket.index() + 1) + i
        for other in range(ranks)
        for i in range(bucket.index() + 1)
    ]
    assert received.tolist() == expected, (received, expected)
    _nap(rank * 13 + bucket.index())
    copied = yield Broadcast(torch.full((bucket.index() + 1,), float(rank)), ranks - 1, group)
    assert copied.tolist() == [ranks - 1.0] * (bucket.index() + 1)
    return parts.flatten()[: buffer.numel()]


@on(2, 4)
def test_multi_round_hooks_keep_their_order(rank: int) -> None:
    """Four rounds, random delays, more buckets than gloo has workers; right in every mode."""
    # A sum of 4 ranks in another order may differ in the last bits of values of about 100.
    bound = 0.0 if dist.get_world_size() == 2 else 1e-4
    for mode, more in MODES.items():
        options = {**more, "bucket_cap_mb": 0.004}
        reference = train(default_hooks.allreduce_hook, rank, steps=10, **options)
        with Tracer() as tracer:
            result = train(trace(every_collective, tracer=tracer), rank, steps=10, **options)
            found = tracer.buckets()
        assert (result - reference).abs().max() <= bound, mode
        for bucket in found:
            wire = [s for s in bucket.stages if s.name == "wire"]
            kinds = ["reduce_scatter", "all_gather", "all_to_all", "broadcast"]
            assert [s.collective for s in wire] == kinds
            assert bucket.wire_bytes == sum(s.wire_bytes or 0 for s in wire)


def experts(count: int) -> nn.Module:
    return nn.Sequential(*[nn.Sequential(m, nn.ReLU(), Summing()) for m in make_model(count)])


@on(2)
@scenario(apart=True)  # where rounds pair up wrongly gloo ends the process
def test_rounds_do_not_pair_up_with_what_else_goes_on(rank: int) -> None:
    """With collectives in the model's backward."""
    seen = []
    for hook in (default_hooks.allreduce_hook, every_collective):
        seen.append(train(hook, rank, steps=10, bucket_cap_mb=0.005, layers=8, make=experts))
    assert (seen[1] - seen[0]).abs().max().item() == 0.0
