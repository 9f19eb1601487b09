"""Which steps of a model are probed, and which of a step's buckets: the same on all ranks.

Ranks of one DDP model count the same steps (under ``no_sync`` none is counted, and under ``join()``
a rank without data counts the shadows), so the count decides.
"""

from __future__ import annotations

import sys

OFF = sys.maxsize
"""No step is ever as late as this."""


class Schedule:
    """From step ``first`` on each ``every``-th one.

    Buckets take turns, one a probed step, or with ``all_buckets`` are all probed on each.
    """

    def __init__(self, first: int, every: int, *, all_buckets: bool = False) -> None:
        self._first = first
        self._every = every
        self._all_buckets = all_buckets

    def next_after(self, step: int) -> int:
        """Return the first probed step that comes after ``step``."""
        if step < self._first:
            return self._first
        return step + self._every - (step - self._first) % self._every

    def takes(self, step: int, bucket: int, bucket_count: int) -> bool:
        """Return whether a bucket of a probed step is probed.

        ``bucket_count``: of the generation; a bucket beyond it, while it is not complete, is not.
        """
        if self._all_buckets:
            return True
        turn = (step - self._first) // self._every
        return bucket_count > 0 and bucket == turn % bucket_count
