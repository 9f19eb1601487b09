"""What TensorBoard shows of one model: scalars, histograms of a window of steps, tables.

StepRecord, buckets, lags, anomalies --ModelSeries--> events of an EventFile
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..records import (
    AnomalyRecord,
    BucketRecord,
    LayoutRecord,
    RunInfo,
    SkewRecord,
    StepRecord,
    metrics,
)
from .tensorboard_tables import anomaly_table, layout_table

if TYPE_CHECKING:
    from .event_file import EventFile

MAX_WAITING = 4096
"""Lags whose steps have not come."""
MAX_ANOMALIES = 50
"""Anomalies in a text; the total stands above them."""


@dataclass(slots=True)
class ModelSeries:
    """What is remembered of one model between exports; all of it bounded."""

    name: str
    timed_steps: int = 0
    group: str = field(init=False)
    durations_ns: dict[str, array[int]] = field(default_factory=dict)
    window_end: tuple[int, int] = (0, 0)
    skews: deque[SkewRecord] = field(default_factory=lambda: deque(maxlen=MAX_WAITING))
    anomalies: deque[AnomalyRecord] = field(default_factory=lambda: deque(maxlen=MAX_ANOMALIES))
    anomaly_count: int = 0
    anomalies_written: int = 0
    anomalies_due: int = 1
    anomaly_step: int = 0

    def __post_init__(self) -> None:
        # A slash would end the group's name.
        self.group = "hooktrace." + self.name.replace("%", "%25").replace("/", "%2F")

    def tag(self, name: str) -> str:
        """Return the model's tag for a metric; TensorBoard groups by what is before the slash."""
        return f"{self.group}/{name}"

    def scalars(self, step: StepRecord) -> Iterator[tuple[str, float]]:
        """Yield (tag, value) of what is known of a step."""
        busbw = step.busbw_bytes_per_second
        for name, value, divisor in (
            ("exposed_ms", step.exposed_ns, 1e6),
            ("overlap_ratio", step.overlap_ratio, 1),
            ("step_period_ms", step.period_ns, 1e6),
            ("busbw_GBps", busbw, 1e9),
            ("gradient_bytes", step.gradient_bytes, 1),
            ("wire_bytes", step.wire_bytes, 1),
            ("compression_ratio", step.compression_ratio, 1),
        ):
            if value is not None:
                yield self.tag(name), value / divisor

    def errors(self, buckets: tuple[BucketRecord, ...]) -> Iterator[tuple[str, float]]:
        """Yield (tag, value) of the buckets that were probed."""
        for bucket in buckets:
            if bucket.error is None or bucket.shadow or bucket.bucket >= metrics.MAX_BUCKET_LABELS:
                continue
            for name, value in (
                ("error", bucket.error.relative_l2),
                ("cosine", bucket.error.cosine),
                ("residual", bucket.error.residual_l2),
            ):
                if value is not None:
                    yield self.tag(f"{name}_bucket{bucket.bucket}"), value

    def lag(self, step: int) -> Iterator[tuple[str, float]]:
        """Yield (tag, value) of the largest lag of a step's probed buckets.

        TensorBoard takes a step that goes back for a restart, so a lag waits for its step.
        """
        lags = [skew.lag_ns for skew in self.skews if skew.step == step]
        if lags:
            yield self.tag("arrival_lag_ms"), max(lags) / 1e6
        while self.skews and self.skews[0].step <= step:
            self.skews.popleft()

    def collect(self, step: int, wall_ns: int, buckets: tuple[BucketRecord, ...]) -> None:
        """Take a timed step's bucket and stage durations into the window."""
        self.timed_steps += 1
        self.window_end = (step, wall_ns)
        windows = self.durations_ns
        for bucket in buckets:
            interval = bucket.interval_ns
            if interval is None or bucket.exception is not None:
                continue
            totals = {"bucket": interval[1] - interval[0]}
            for stage in bucket.timed_stages:
                name = stage.name
                totals[name] = totals.get(name, 0) + stage.end_ns - stage.start_ns
            for name, ns in totals.items():
                if name in windows:
                    windows[name].append(ns)
                else:
                    windows[name] = array("q", (ns,))

    def write_histograms(self, file: EventFile) -> None:
        """Write the window's histograms and begin the next window."""
        step, wall_ns = self.window_end
        for name, values in self.durations_ns.items():
            tag = self.tag("bucket_ms" if name == "bucket" else f"stage_{name}_ms")
            file.histogram(step, wall_ns, tag, values)
        self.durations_ns.clear()

    def layout(self, file: EventFile, run: RunInfo, layout: LayoutRecord) -> None:
        """Write a layout's table."""
        wall_ns = run.wall_ns(layout.time_ns)
        file.text(layout.step, wall_ns, self.tag("layout"), layout_table(layout))

    def anomaly(self, anomaly: AnomalyRecord) -> None:
        """Remember an anomaly for the next table."""
        self.anomalies.append(anomaly)
        self.anomaly_count += 1
        self.anomaly_step = max(self.anomaly_step, anomaly.step)

    def write_anomalies(self, file: EventFile, run: RunInfo, *, last: bool = False) -> None:
        """Write the table when a quarter more have come than it had, so that it stays bounded."""
        due = (
            self.anomaly_count > self.anomalies_written
            if last
            else (self.anomaly_count >= self.anomalies_due)
        )
        if not due:
            return
        self.anomalies_written = self.anomaly_count
        self.anomalies_due = self.anomaly_count + 1 + self.anomaly_count // 4
        wall_ns = run.wall_ns(self.anomalies[-1].time_ns)
        table = anomaly_table(self.anomalies, self.anomaly_count)
        file.text(self.anomaly_step, wall_ns, self.tag("anomalies"), table)
        file.scalars(
            self.anomaly_step, wall_ns, [(self.tag("anomalies_total"), self.anomaly_count)]
        )
