"""The last records, in memory, for ``tracer.steps()`` and its sisters."""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from typing import Any, TypeVar

from ..records import Batch, CompletedStep

_KEPT_OF_A_KIND = 1000

R = TypeVar("R")


class RecentRecords:
    """Keeps the last steps with their buckets, and the last records of each other kind.

    ``max_steps`` and ``max_buckets`` bound the memory: the oldest step goes when either is passed.
    Safe from several threads.
    """

    def __init__(self, max_steps: int, max_buckets: int) -> None:
        self._max_steps = max_steps
        self._max_buckets = max_buckets
        self._steps: deque[CompletedStep] = deque()
        self._bucket_count = 0
        self._records: defaultdict[type, deque[Any]] = defaultdict(
            lambda: deque(maxlen=_KEPT_OF_A_KIND)
        )
        self._lock = threading.Lock()

    def add(self, batch: Batch) -> None:
        """Keep a batch, and let go of what no longer fits."""
        with self._lock:
            for record in batch.records:
                self._records[type(record)].append(record)
            for completed in batch.steps:
                self._steps.append(completed)
                self._bucket_count += len(completed[1])
            while len(self._steps) > self._max_steps or (
                self._bucket_count > self._max_buckets and len(self._steps) > 1
            ):
                self._bucket_count -= len(self._steps.popleft()[1])

    def steps(self) -> list[CompletedStep]:
        """Return the kept steps with their buckets, oldest first."""
        with self._lock:
            return list(self._steps)

    def of(self, kind: type[R]) -> list[R]:
        """Return the kept records of a kind that is no step or bucket, oldest first."""
        with self._lock:
            return list(self._records.get(kind, ()))
