"""The default hooks: plain averaging, and averaging after a cast to a 16-bit type.

Names and mathematics are those of ``torch.distributed.algorithms.ddp_comm_hooks.default_hooks``;
results are bit-identical.  The state is the process group, ``None`` for the default group.
"""

from __future__ import annotations

from typing import Any

import torch

from ..capture.buckets import GradBucketLike
from ..staging.collectives import AllReduce
from ..staging.driver import Steps
from ..staging.groups import group_of
from ..staging.hook import staged


@staged(check=group_of)
def allreduce_hook(state: Any, bucket: GradBucketLike) -> Steps:
    """Average the gradients: what DDP does without a hook.

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
