"""What is known when DDP calls a hook, before the hook runs."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..capture.buckets import BucketSlot, GradBucketLike


class CallStart(NamedTuple):
    """A hook call that is about to begin; ``ready``: host ns at which DDP made it."""

    slot: BucketSlot
    step: int
    ready: int
    bucket: GradBucketLike
    state: Any
