"""What the drain hands to exporters."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from .bucket import BucketRecord
from .run import RunInfo
from .step import StepRecord

CompletedStep = tuple[StepRecord, tuple[BucketRecord, ...]]
"""A step and its buckets, in order."""

R = TypeVar("R")


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What the drain hands to each exporter: whole steps with their buckets, in order.

    ``records`` are all that are no step or bucket, of whatever kind, in order; an anomaly comes in
    the batch of its step.  ``losses`` are the totals so far of everything that was lost, by reason;
    ``failures`` the exporters that were disabled, by name.
    """

    run: RunInfo
    steps: tuple[CompletedStep, ...] = ()
    records: tuple[object, ...] = ()
    losses: dict[str, int] = msgspec.field(default_factory=dict)
    failures: dict[str, int] = msgspec.field(default_factory=dict)

    def of(self, kind: type[R]) -> tuple[R, ...]:
        """Return the records of one kind: ``batch.of(AnomalyRecord)``."""
        return tuple(record for record in self.records if isinstance(record, kind))
