"""Averaging by an all-gather: what the very first communication hooks did."""

from __future__ import annotations

from typing import Any

import torch

from ..capture.buckets import GradBucketLike
from ..staging.collectives import AllGather
from ..staging.driver import Steps
from ..staging.groups import group_of
from ..staging.hook import staged


@staged(check=group_of)
def allgather_then_aggregate_hook(state: Any, bucket: GradBucketLike) -> Steps:
    """Gather the gradients of all ranks, add them and divide the sum by the world size.

    torch 1.7 and 1.8 had it as an example.  It sends (n - 1)/2 times what a ring all-reduce over n
    ranks sends, and holds n copies of the bucket.  Here all ranks add in the order of ranks, so
    that the replicas stay equal bit for bit; there each began with its own gradients.  The
    division comes last: sums of float16 gradients can overflow.  The state is a process group,
    ``None`` for the default one.
    """
    group, buffer = group_of(state), bucket.buffer()
    rank = group.rank()
    # This rank's own row is the bucket itself: gathering writes to it what is there already.
    rows = [buffer if r == rank else torch.empty_like(buffer) for r in range(group.size())]
    gathered = yield AllGather(buffer, group, into=rows)
    # x + y is y + x bit for bit, so rank 1 may start with its own, and the order still holds.
    total = gathered[1] if rank == 1 else gathered[0]
    for row in gathered:
        if row is not total:
            total.add_(row)
    return total.div_(group.size())
