"""What is usual of late: the median of the last numbers of a series that never ends."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque


class RunningMedian:
    """The median of the last ``last`` numbers; ``None`` before there are ``enough``."""

    def __init__(self, last: int, enough: int) -> None:
        self._last = last
        self._enough = enough
        self._order: deque[int] = deque()
        self._sorted: list[int] = []

    @property
    def median(self) -> int | None:
        """The upper one of the two in the middle."""
        return self._sorted[len(self._sorted) // 2] if len(self._sorted) >= self._enough else None

    def add(self, value: int) -> None:
        """Take the next number; forget the oldest."""
        if len(self._order) == self._last:
            del self._sorted[bisect_left(self._sorted, self._order.popleft())]
        self._order.append(value)
        insort(self._sorted, value)
