"""Every kind of collective, in hooks of many rounds."""

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
from hooktrace import AllGather, AllToAll, Broadcast, ReduceScatter, Tracer, hooks, trace
from tests.distributed.harness import on
from tests.distributed.models import gradients, make_ddp, train
from tests.distributed.test_training import MODES


def _nap(seed: int) -> None:
    """Take a random time: chains of different buckets must not depend on it."""
    time.sleep(random.Random(seed).random() * 0.002)


@hooktrace.staged(multi_round=True)
def every_collective(state: Any, bucket: Any) -> Iterator[Any]:
    """Average through a reduce-scatter and an all-gather, and check the others on the way."""
    ranks, rank = dist.get_world_size(), dist.get_rank()
    buffer = bucket.buffer()
    padded = nn.functional.pad(buffer / ranks, (0, -buffer.numel() % ranks))
    part = yield ReduceScatter(padded)
    _nap(rank * 7 + bucket.index())
    parts = yield AllGather(part)
    # A size that depends on the bucket: pairing two buckets' collectives up wrongly shows.
    sent = torch.arange(float(ranks * (bucket.index() + 1))) + 100 * rank
    received = yield AllToAll(sent)
    expected = [
        100 * other + rank * (bucket.index() + 1) + i
        for other in range(ranks)
        for i in range(bucket.index() + 1)
    ]
    assert received.tolist() == expected, (received, expected)
    _nap(rank * 13 + bucket.index())
    copied = yield Broadcast(torch.full((bucket.index() + 1,), float(rank)), ranks - 1)
    assert copied.tolist() == [ranks - 1.0] * (bucket.index() + 1)
    return parts.flatten()[: buffer.numel()]


@pytest.mark.slow
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
    # Two models, one of them single-round, on the same group in one backward pass.
    first, second = make_ddp(), make_ddp()
    first.register_comm_hook(None, every_collective)
    second.register_comm_hook(None, hooks.allreduce_hook)
    for step in range(10):
        first.zero_grad()
        second.zero_grad()
        torch.manual_seed(1000 * rank + step)
        data = torch.randn(4, 32)
        (first(data).square().sum() + second(data).square().sum()).backward()
    assert (gradients(first) - gradients(second)).abs().max() <= bound
