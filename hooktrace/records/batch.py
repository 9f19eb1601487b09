"""What the drain hands to exporters."""

from __future__ import annotations

import msgspec

from .anomaly import AnomalyRecord
from .bucket import BucketRecord
from .layout import LayoutRecord
from .run import ClockRecord, RunInfo
from .skew import SkewRecord
from .step import StepRecord

__all__ = ["Batch"]


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What the drain hands to each exporter: whole steps with their buckets, in order.

    ``losses`` are the totals so far of everything that was lost, by reason; ``failures`` the
    exporters that were disabled, by name.
    """

    run: RunInfo
    layouts: tuple[LayoutRecord, ...] = ()
    steps: tuple[tuple[StepRecord, tuple[BucketRecord, ...]], ...] = ()
    anomalies: tuple[AnomalyRecord, ...] = ()
    clocks: tuple[ClockRecord, ...] = ()
    skews: tuple[SkewRecord, ...] = ()
    losses: dict[str, int] = msgspec.field(default_factory=dict)
    failures: dict[str, int] = msgspec.field(default_factory=dict)
