"""Who keeps the memory of a bucket, told by reference counts.

    first call: counts while no hook has seen the bucket --> limits
    later calls: counts, the lowest of some calls > limit --> "a view", "a list", ...

DDP uses the memory of a bucket again in each step.  A hook that keeps it, or a view of it, sees it
change: a residual must be a copy.  While a step's last callbacks end the counts are higher for a
moment, so what counts is the lowest of some steps.
"""

from __future__ import annotations

import gc
import sys
from collections import deque
from collections.abc import Iterator
from types import FrameType

import torch

from ..capture.buckets import BucketSlot, GradBucketLike

_CALLS = 8
"""In as many calls one after another memory must be held to count."""


class MemoryHolders:
    """Who holds one bucket's memory: reference counts of its last calls, before each."""

    def __init__(self, slot: BucketSlot) -> None:
        self._parameters = len(slot.parameters)
        self._limits: tuple[int, int, int] | None = None
        self._found = False
        self._seen: deque[tuple[int, int, int]] = deque(maxlen=_CALLS)

    def holder(self, bucket: GradBucketLike) -> str | None:
        """Return who holds the memory since the call before, once; ``None`` if nobody does."""
        holder = None if self._found else self._holder(bucket)
        self._found = self._found or holder is not None
        return holder

    def _holder(self, bucket: GradBucketLike) -> str | None:
        counts = references(bucket.buffer())
        if self._limits is None:
            storage, tensor, python = counts
            # DDP itself adds a view for each parameter after the first call, and the tensor's
            # Python object is then kept by the tensor.
            self._limits = storage + self._parameters, tensor + self._parameters, python + 1
            return None
        self._seen.append(counts)
        if len(self._seen) < _CALLS:
            return None
        storage, tensor, python = (
            min(counts) > limit
            for counts, limit in zip(zip(*self._seen, strict=True), self._limits, strict=True)
        )
        if storage:
            return "a view (the hook's, or with gradient_as_bucket_view the training loop's)"
        if tensor:
            return "a GradBucket, or a future, that the hook keeps"
        return _container(bucket.buffer()) if python else None


def references(tensor: torch.Tensor) -> tuple[int, int, int]:
    """Return the references to a tensor's storage, to the tensor, and to its Python object."""
    storage = torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)
    return storage, tensor._use_count(), sys.getrefcount(tensor)  # type: ignore[attr-defined]


def _container(tensor: torch.Tensor) -> str | None:
    """Return what a tensor's Python object is kept in, ``None`` where running code only has it."""
    for referrer in gc.get_referrers(tensor):
        if not isinstance(referrer, FrameType) and not isinstance(referrer, Iterator):
            return f"a {type(referrer).__name__}"
    return None
