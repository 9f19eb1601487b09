"""A hook that does not communicate."""

from __future__ import annotations

from typing import Any

from ..capture.buckets import GradBucketLike
from ..staging.driver import Steps
from ..staging.hook import staged


@staged(local=True)
def noop_hook(state: Any, bucket: GradBucketLike) -> Steps:
    """Return the local gradients: a step's time without any communication.

    For measuring only.  The replicas drift apart, and what is trained is worth nothing.  The state
    is not looked at.
    """
    yield from ()  # which makes it a generator
    return bucket.buffer()
