"""What a tracer answers from memory: the last steps, buckets and other records.

RecentRecords --after a flush--> lists, oldest first; summaries
"""

from __future__ import annotations

from typing import TypeVar

from ..records import (
    AnomalyRecord,
    BucketRecord,
    ClockRecord,
    CompletedStep,
    LayoutRecord,
    SkewRecord,
    StepRecord,
)
from ..records.summary import ModelSummary, summarize
from .recent import RecentRecords

R = TypeVar("R")


class Queries:
    """The questions to a tracer; each first waits until all that was recorded is exported."""

    _recent: RecentRecords

    def flush(self, timeout_s: float = 10.0) -> bool:
        """Wait until all that was recorded is in memory."""
        raise NotImplementedError

    def steps(self, model: str | None = None) -> list[StepRecord]:
        """Return the last steps, oldest first, of one model or of all."""
        return [step for step, _ in self._completed(model)]

    def buckets(self, model: str | None = None) -> list[BucketRecord]:
        """Return the buckets of the last steps, oldest first, of one model or of all."""
        return [bucket for _, buckets in self._completed(model) for bucket in buckets]

    def summary(self) -> list[ModelSummary]:
        """Return percentiles of the kept steps, one summary a model."""
        return summarize(self._completed())

    def layouts(self) -> list[LayoutRecord]:
        """Return the bucket layouts, oldest first: one a generation."""
        return self.records(LayoutRecord)

    def anomalies(self) -> list[AnomalyRecord]:
        """Return what went wrong in hooks, oldest first."""
        return self.records(AnomalyRecord)

    def skews(self) -> list[SkewRecord]:
        """Return when the ranks had probed buckets ready, oldest first."""
        return self.records(SkewRecord)

    def clocks(self) -> list[ClockRecord]:
        """Return this rank's measurements of its clock against rank 0's, oldest first."""
        return self.records(ClockRecord)

    def records(self, kind: type[R]) -> list[R]:
        """Return the last records of any kind that is no step or bucket, oldest first."""
        self.flush()
        return self._recent.of(kind)

    def _completed(self, model: str | None = None) -> list[CompletedStep]:
        self.flush()
        steps = self._recent.steps()
        return [(step, buckets) for step, buckets in steps if model in (None, step.model)]
