"""Which steps of a model are looked at, and which of a step's buckets or units.

Ranks of one DDP model count the same steps (under ``no_sync`` none is counted, and under ``join()``
a rank without data counts the shadows), so the count decides.  From which step on, the ranks agree
(``agreement.py``).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

OFF = sys.maxsize
"""No step is ever as late as this."""


@dataclass(slots=True)
class Schedule:
    """From step ``first`` on each ``every``-th one, and the first ``burst`` ones too.

    Buckets take turns, one a probed step, or with ``all_buckets`` are all probed on each.
    ``every`` is 0 where none comes after the burst.
    """

    first: int
    every: int
    all_buckets: bool = False
    burst: int = 0

    def next_after(self, step: int) -> int:
        """Return the first probed step that comes after ``step``."""
        if step < self.first:
            return self.first if self.burst or self.every else OFF
        if step + 1 < self.first + self.burst:
            return step + 1
        if not self.every:
            return OFF
        return step + self.every - (step - self.first) % self.every

    def takes(self, step: int, bucket: int, bucket_count: int) -> bool:
        """Return whether a bucket of a probed step is probed.

        ``bucket_count``: of the generation; a bucket beyond it, while it is not complete, is not.
        A step between probed ones may come here after calls that were not recorded.
        """
        turn = self.turn(step)
        if turn is None:
            return False
        return self.all_buckets or (bucket_count > 0 and bucket == turn % bucket_count)

    def turn(self, step: int) -> int | None:
        """Return how many turns were before a probed step; ``None`` of another step."""
        ordinal = step - self.first
        if 0 <= ordinal < self.burst:
            return ordinal
        return None if not self.every or ordinal % self.every else ordinal // self.every
