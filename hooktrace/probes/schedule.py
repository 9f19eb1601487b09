"""Which steps of a model are looked at, and which of a step's buckets or units.

Ranks of one model count the same steps (under ``no_sync`` none is counted, and under ``join()`` a
rank without data counts the dummy steps), so the count decides.  Whether all are there, the ranks
ask each other at each (``agreement.py``).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

OFF = sys.maxsize
"""No step is ever as late as this."""

FIRST = range(2, 3)
"""The first step after DDP has rebuilt its buckets."""


@dataclass(slots=True)
class Schedule:
    """From step ``first`` on each ``every``-th one, and those of a ``burst``, which are asked for.

    Buckets take turns, one a checked step, or with ``all_buckets`` are all checked on each.
    """

    first: int
    every: int
    all_buckets: bool = False
    burst: range = range(0)

    @classmethod
    def after(cls, step: int, every: int, all_buckets: bool = False) -> Schedule:
        """Return that of the multiples of ``every`` after a model's first ``step``."""
        return cls(step + every - step % every, every, all_buckets)

    def next_after(self, step: int) -> int:
        """Return the first checked step that comes after ``step``."""
        past = max(step + 1 - self.first, 0)
        regular = self.first + past + -past % self.every
        asked = max(step + 1, self.burst.start)
        return min(regular, asked) if asked in self.burst else regular

    def takes(self, step: int, bucket: int, bucket_count: int) -> bool:
        """Return whether a bucket of a checked step is checked.

        ``bucket_count``: of the rebuild; a bucket beyond it, while it is not complete, is not.
        A step between checked ones may come here after calls that were not recorded.
        """
        turn = self.turn(step)
        if turn is None:
            return False
        return self.all_buckets or (bucket_count > 0 and bucket == turn % bucket_count)

    def turn(self, step: int) -> int | None:
        """Return how many turns were before a checked step; ``None`` of another step."""
        if step in self.burst:
            return step - self.burst.start
        ordinal = step - self.first
        return None if ordinal < 0 or ordinal % self.every else ordinal // self.every
