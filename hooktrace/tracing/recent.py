"""The last records, in memory, and what a tracer answers from them.

batches of the drain --> RecentRecords --after a flush--> Queries: lists, oldest first; summaries
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any, TypeVar

from ..records import (
    AnomalyRecord,
    Batch,
    BucketRecord,
    ClockRecord,
    CompletedStep,
    HangRecord,
    LayoutRecord,
    SkewRecord,
    StepRecord,
)
from ..records.summary import ModelSummary, summarize

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

    def durations(self, model: str) -> list[int]:
        """Return how long the kept buckets of a model took, ns."""
        kept = [buckets for step, buckets in self.steps() if step.model == model]
        return [bucket.done_ns - bucket.ready_ns for buckets in kept for bucket in buckets]

    def of(self, kind: type[R]) -> list[R]:
        """Return the kept records of a kind that is no step or bucket, oldest first."""
        with self._lock:
            return list(self._records.get(kind, ()))


class Queries:
    """The questions to a tracer; each first waits until all that was recorded is exported."""

    _recent: RecentRecords

    flush: Callable[[], bool]
    """Waits until all that was recorded is in memory."""

    def steps(self, model: str | None = None) -> list[StepRecord]:
        """Return the last steps, oldest first, of one model or of all."""
        return [step for step, _ in self._completed(model)]

    def buckets(self, model: str | None = None) -> list[BucketRecord]:
        """Return the buckets of the last steps, oldest first, of one model or of all."""
        return [bucket for _, buckets in self._completed(model) for bucket in buckets]

    def summary(self, *, last: int | None = None, wait: bool = True) -> list[ModelSummary]:
        """Return percentiles of the kept steps, one summary a model.

        ``last``: of so many steps at the end.  ``wait=False``: of what is in memory by now.
        """
        completed = self._completed() if wait else self._recent.steps()
        return summarize(completed if last is None else completed[-last:])

    def layouts(self) -> list[LayoutRecord]:
        """Return the bucket layouts, oldest first: one a generation."""
        return self.records(LayoutRecord)

    def anomalies(self) -> list[AnomalyRecord]:
        """Return what went wrong in hooks, oldest first."""
        return self.records(AnomalyRecord)

    def skews(self) -> list[SkewRecord]:
        """Return when the ranks had probed buckets ready, oldest first."""
        return self.records(SkewRecord)

    def hangs(self) -> list[HangRecord]:
        """Return when ranks waited for others that did not come, and when that ended."""
        return self.records(HangRecord)

    def clocks(self) -> list[ClockRecord]:
        """Return this rank's measurements of its clock against rank 0's, oldest first."""
        return self.records(ClockRecord)

    def records(self, kind: type[R]) -> list[R]:
        """Return the last records of any kind that is no step or bucket, oldest first."""
        self.flush()
        return self._recent.of(kind)

    def _completed(self, model: str | None = None) -> list[CompletedStep]:
        self.flush()
        return [(s, buckets) for s, buckets in self._recent.steps() if model in (None, s.model)]
