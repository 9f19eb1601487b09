"""The last records, in memory, for ``tracer.steps()`` and its sisters."""

from __future__ import annotations

import threading
from collections import deque

from ..records import (
    AnomalyRecord,
    Batch,
    BucketRecord,
    ClockRecord,
    LayoutRecord,
    SkewRecord,
    StepRecord,
)

__all__ = ["Store"]

_KEPT_LAYOUTS = 64
_KEPT_ANOMALIES = 1000
_KEPT_CLOCKS = 1000
_KEPT_SKEWS = 1000


class Store:
    """Keeps the last steps, a bounded number of buckets, and all that is rare.

    ``max_steps`` and ``max_buckets`` bound the memory; the older of the two limits wins.
    """

    def __init__(self, max_steps: int, max_buckets: int) -> None:
        self._max_steps = max_steps
        self._max_buckets = max_buckets
        self._steps: deque[tuple[StepRecord, tuple[BucketRecord, ...]]] = deque()
        self._bucket_count = 0
        self._layouts: deque[LayoutRecord] = deque(maxlen=_KEPT_LAYOUTS)
        self._anomalies: deque[AnomalyRecord] = deque(maxlen=_KEPT_ANOMALIES)
        self._clocks: deque[ClockRecord] = deque(maxlen=_KEPT_CLOCKS)
        self._skews: deque[SkewRecord] = deque(maxlen=_KEPT_SKEWS)
        self._lock = threading.Lock()

    def add(self, batch: Batch) -> None:
        """Keep a batch, and let go of what no longer fits."""
        with self._lock:
            self._layouts.extend(batch.layouts)
            self._anomalies.extend(batch.anomalies)
            self._clocks.extend(batch.clocks)
            self._skews.extend(batch.skews)
            for completed in batch.steps:
                self._steps.append(completed)
                self._bucket_count += len(completed[1])
            while len(self._steps) > self._max_steps or (
                self._bucket_count > self._max_buckets and len(self._steps) > 1
            ):
                self._bucket_count -= len(self._steps.popleft()[1])

    def completed(self) -> list[tuple[StepRecord, tuple[BucketRecord, ...]]]:
        """Return the kept steps with their buckets, oldest first."""
        with self._lock:
            return list(self._steps)

    def layouts(self) -> list[LayoutRecord]:
        """Return the kept layouts, oldest first."""
        with self._lock:
            return list(self._layouts)

    def anomalies(self) -> list[AnomalyRecord]:
        """Return the kept anomalies, oldest first."""
        with self._lock:
            return list(self._anomalies)

    def clocks(self) -> list[ClockRecord]:
        """Return the kept measurements of the clock, oldest first."""
        with self._lock:
            return list(self._clocks)

    def skews(self) -> list[SkewRecord]:
        """Return the kept arrivals of probed buckets, oldest first."""
        with self._lock:
            return list(self._skews)
