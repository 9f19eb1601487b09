"""Plain hooks: an average, the same by an all-gather or after a cast to 16 bits, or none at all.

Names and mathematics are those of torch's ``default_hooks`` and ``debugging_hooks``; results are
bit-identical.  The state is the process group, ``None`` for the default group.
"""

from __future__ import annotations

from typing import Any

import torch

from ..staging.collectives import AllGather, AllReduce
from ..staging.driver import Steps
from ..staging.groups import group_of
from ..staging.hook import staged
from ..staging.slots import GradBucketLike


@staged(check=group_of)
def allreduce_hook(state: Any, bucket: GradBucketLike) -> Steps:
    """Average the gradients: what DDP does without a hook, up to rounding from three ranks on.

    The division comes before the sum, so that fp16 gradients do not overflow.
    """
    group = group_of(state)
    return (yield AllReduce(bucket.buffer().div_(group.size()), group))


@staged(floating=True, check=group_of)
def fp16_compress_hook(state: Any, bucket: GradBucketLike) -> Steps:
    """Average the gradients as float16: half the bytes of float32.

    As in torch, the cast comes before the division: a gradient beyond 65504 becomes inf.
    """
    return (yield from _compressed(torch.float16, state, bucket))


# DDP refuses a hook by this very name where torch was built without CUDA, although gloo reduces
# bfloat16 correctly.  Under another `__name__` it works on every backend.
@staged(floating=True, check=group_of, ddp_name="bf16_compress_staged_hook")
def bf16_compress_hook(state: Any, bucket: GradBucketLike) -> Steps:
    """Average the gradients as bfloat16: half the bytes of float32, and its range."""
    return (yield from _compressed(torch.bfloat16, state, bucket))


def _compressed(dtype: torch.dtype, state: Any, bucket: GradBucketLike) -> Steps:
    group = group_of(state)
    buffer = bucket.buffer()
    payload = buffer.to(dtype).div_(group.size())
    payload = yield AllReduce(payload, group)
    return buffer.copy_(payload)


@staged(check=group_of)
def allgather_then_aggregate_hook(state: Any, bucket: GradBucketLike) -> Steps:
    """Gather the gradients of all ranks, add them and divide the sum by the world size.

    torch 1.7 and 1.8 had it as an example.  It sends (n - 1)/2 times what a ring all-reduce over n
    ranks sends, and holds n copies of the bucket.  Here all ranks add in the order of ranks, so
    that the replicas stay equal bit for bit; there each began with its own gradients.  The
    division comes last: sums of float16 gradients can overflow.
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


@staged(local=True)
def noop_hook(state: Any, bucket: GradBucketLike) -> Steps:
    """Return the local gradients: a step's time without any communication.

    For measuring only.  The replicas drift apart, and what is trained is worth nothing.  The state
    is not looked at.
    """
    yield from ()  # which makes it a generator
    return bucket.buffer()
