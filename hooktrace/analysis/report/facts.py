"""What the records of all ranks amount to: numbers a model, before anyone judges them.

    gather.py --> RunFacts --> findings.py, terminal.py, html.py
                  a ModelFacts for each model
                      a BucketFacts for each bucket, a RankFacts for each rank

Times are ns, sizes bytes; ``None`` where nothing was measured.  Medians are over all ranks and
settled steps unless they say otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...records import AnomalyRecord, RunInfo
from .late_ranks import Lateness
from .step_arrays import Floats, Grid
from .tails import SlowSteps

__all__ = [
    "AnomalyFacts",
    "BucketError",
    "BucketFacts",
    "ModelFacts",
    "RankFacts",
    "RunFacts",
    "Spread",
]


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and 95th percentile."""

    p50: float
    p95: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketError:
    """Relative L2 errors of ``count`` probes of one bucket; ``worst`` names a parameter."""

    p50: float
    most: float
    count: int
    worst: str | None
    has_feedback: bool
    is_local: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketFacts:
    """One bucket.

    ``ready_ns``: after the first bucket of the step.  ``transfer_ns``: the wire time of the rank
    that waited least, which is what the collective takes once all ranks are there; the median of
    ``stages["wire"]`` has the waiting in it.  ``charged``: the share of the exposed time that went
    by until this bucket was done, after the others before it.  ``largest``: of the parameter with
    the most elements its name and its share of the bucket.
    """

    bucket: int
    is_last: bool
    parameters: int
    largest: tuple[str, float] | None
    gradient_bytes: int
    wire_bytes: float | None
    ready_ns: float | None
    duration: Spread | None
    call_ns: float | None
    stages: dict[str, float]
    transfer_ns: float | None
    busbw_bytes_per_second: float | None
    charged: float
    error: BucketError | None

    @property
    def wait_ns(self) -> float | None:
        """Wire time that goes by waiting for other ranks, at the median; at least 0."""
        wire = self.stages.get("wire")
        if wire is None or self.transfer_ns is None:
            return None
        return max(0.0, wire - self.transfer_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFacts:
    """One rank; ``lag_ns``: median, of the last bucket, after the first rank."""

    rank: int
    host: str | None
    steps: int
    period_ns: float | None
    exposed_ns: float | None
    overlap: float | None
    lag_ns: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnomalyFacts:
    """Anomalies of one kind: how many, since when, where, and the first one's message."""

    kind: str
    count: int
    first: AnomalyRecord
    ranks: tuple[int, ...]
    buckets: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """One model's last generation.

    ``grid`` and ``lags`` (ranks, buckets; median ns after the first rank, NaN where unknown) are
    what pictures are drawn from.
    """

    model: str
    hook: str
    clock: str
    steps: int
    period: Spread | None
    exposed: Spread | None
    overlap: float | None
    busy_ns: float | None
    wire_busy_ns: float | None
    gradient_bytes: int
    wire_bytes: float | None
    busbw_bytes_per_second: float | None
    is_32_bit: bool
    buckets: tuple[BucketFacts, ...]
    ranks: tuple[RankFacts, ...]
    late: tuple[Lateness, ...]
    slow: SlowSteps | None
    anomalies: tuple[AnomalyFacts, ...]
    grid: Grid
    lags: Floats

    @property
    def exposed_share(self) -> float | None:
        """Exposed communication as a share of the step's period, both medians."""
        if self.exposed is None or self.period is None or not self.period.p50:
            return None
        return self.exposed.p50 / self.period.p50

    @property
    def last(self) -> BucketFacts | None:
        """The bucket whose gradients come last."""
        return next((b for b in self.buckets if b.is_last), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """A run: what is known of it, a model each, and what is missing, in sentences."""

    run: RunInfo | None
    ranks: int
    models: tuple[ModelFacts, ...]
    missing: tuple[str, ...]
    unaligned: tuple[int, ...]
    anomalies: tuple[AnomalyFacts, ...]
