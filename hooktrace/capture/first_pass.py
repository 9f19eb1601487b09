"""A static graph's first backward pass, in which buckets do not tell which they are.

With ``static_graph=True`` DDP calls the hooks of the first backward pass at its end, outside any
node of the graph.  Each bucket then has index 0 and, where there are several (parameters of several
dtypes or devices, sparse gradients), none is the last.  They come in their order, and from the
second pass on they tell.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .backward import graph_task_id
from .buckets import GradBucketLike

_current_node: Callable[[], Any] | None = getattr(torch._C, "_current_autograd_node", None)


def is_unnumbered(bucket: GradBucketLike) -> bool:
    """Whether a bucket's index is not its own; never where torch does not tell."""
    if bucket.index() > 0 or bucket.is_last() or graph_task_id is None or _current_node is None:
        return False
    return graph_task_id() != -1 and _current_node() is None


def kind_of(bucket: GradBucketLike) -> tuple[torch.dtype, torch.device] | None:
    """Return what no two buckets of a model have in common in that pass; ``None`` if sparse."""
    buffer = bucket.buffer()
    return (buffer.dtype, buffer.device) if buffer.layout is torch.strided else None


class UnnumberedPasses:
    """Counts unnumbered buckets, one model after another.

    Two models in one backward pass are told apart by their dtypes, unless they have none in common.
    """

    def __init__(self) -> None:
        self._task = -1
        self._kinds: list[object] = []

    def number(self, bucket: GradBucketLike) -> int:
        """Return how many buckets of its model came before an unnumbered one in this pass."""
        assert graph_task_id is not None
        task, kind = graph_task_id(), kind_of(bucket)
        if task != self._task or (kind is not None and kind in self._kinds):
            self._task, self._kinds = task, []
        self._kinds.append(kind)
        return len(self._kinds) - 1
