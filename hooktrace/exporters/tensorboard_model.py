"""What TensorBoard shows of one model: scalars, histograms of a window of steps, tables.

StepRecord, buckets, delays, anomalies --ModelSeries--> events of an EventFile
"""

from __future__ import annotations

import math
from array import array
from collections import defaultdict, deque
from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from ..records import (
    AnomalyRecord,
    AssignmentRecord,
    BucketRecord,
    RunInfo,
    SkewRecord,
    StepRecord,
    metrics,
)
from ..records.bucket import stage_lengths_ns
from .model_labels import First
from .tensorboard_tables import anomaly_table, assignment_table
from .tensorboard_tags import exposed_tag, group_of, tag_of, unit_tag

if TYPE_CHECKING:
    from .event_file import EventFile

MAX_WAITING = 4096
"""Delays whose steps have not come."""
MAX_ANOMALIES = 50
"""Anomalies in a text; the total stands above them."""
FULL = 1000
"""TensorBoard shows as many points of a tag; twice as many are written before any is left out."""


def is_due(count: int, every: int = 1) -> bool:
    """Return whether the ``count``-th of something, from 0 on, is written.

    It is each ``every``-th of the first ``2 * FULL`` that are due, half of as many more, a quarter
    of twice as many more, and so on: of n about ``FULL * log2(n / FULL)``, so that no run is too
    long.
    """
    halvings = max(0, (count // (every * FULL)).bit_length() - 1)
    return count % (every << halvings) == 0


class ModelSeries:
    """Writes one model's events; what is remembered between exports is bounded."""

    def __init__(self, file: EventFile, run: RunInfo, name: str) -> None:
        self._file = file
        self._run = run
        self._group = group_of(name)
        self._timed_steps = 0
        self._is_due = False
        self._other_steps = 0
        self._due = -1  # the last step with scalars, whose period the next one knows
        self._durations_ns: defaultdict[str, array[int]] = defaultdict(partial(array, "q"))
        self._window_end = (0, 0)
        self._skews: deque[SkewRecord] = deque(maxlen=MAX_WAITING)
        self._anomalies: deque[AnomalyRecord] = deque(maxlen=MAX_ANOMALIES)
        self._units = First(metrics.MAX_UNITS)
        self._anomaly_count = 0
        self._anomalies_written = 0
        self._anomaly_step = 0

    def step(
        self,
        step: StepRecord,
        buckets: tuple[BucketRecord, ...],
        scalar_every: int,
        histogram_every: int,
    ) -> None:
        """Write what is due of a step; both intervals are in timed steps."""
        wall_ns = self._run.wall_ns(step.done_ns)
        if self._due == step.step - 1 and step.previous_period_ns is not None:
            period = [(self._tag("step_period_ms"), step.previous_period_ns / 1e6)]
            self._file.scalars(self._due, wall_ns, period)
        sampled = [*self._errors(buckets), *self._delay(step.step)]
        # What is known of few steps only does not follow the distance between timed ones.
        bounded, is_listed = buckets[0].bounded, step.sent is not None and not buckets[0].bounded
        is_other = bool(sampled) or is_listed or not step.counts
        other_is_due = is_other and is_due(self._other_steps)
        self._other_steps += is_other
        if sampled and other_is_due:
            self._file.scalars(step.step, wall_ns, sampled)
        if not step.settled:
            return
        self._is_due |= is_due(self._timed_steps, scalar_every)
        # Of a bounded step the overlap is not known: a later one is written in its place.
        is_timed = self._is_due and not bounded and (step.counts or other_is_due)
        if is_timed or (is_listed and other_is_due):
            exposed = self._exposed(buckets) if step.counts and step.sharded else ()
            self._file.scalars(step.step, wall_ns, chain(self._scalars(step), exposed))
            self._due = step.step if step.counts else -1
            self._is_due = False
        if not step.counts:
            return
        if is_due(self._timed_steps // histogram_every):
            self._collect(buckets)
            self._window_end = (step.step, wall_ns)
        self._timed_steps += 1
        if self._timed_steps % histogram_every == 0:
            self.write_histograms()

    def _tag(self, name: str) -> str:
        return tag_of(self._group, name)

    def _scalars(self, step: StepRecord) -> Iterator[tuple[str, float]]:
        times = (
            ("exposed_ms", step.exposed_ns, 1e6),
            ("overlap_ratio", step.overlap_ratio, 1),
            ("busbw_GBps", step.busbw_bytes_per_second, 1e9),
        )
        sizes = (
            ("payload_bytes" if step.sharded else "gradient_bytes", step.gradient_bytes, 1),
            ("wire_bytes", step.wire_bytes, 1),
            ("compression_ratio", step.compression_ratio, 1),
        )
        for name, value, unit in (*times, *sizes) if step.counts else sizes:
            if value is not None:
                yield self._tag(name), value / unit

    def _exposed(self, buckets: tuple[BucketRecord, ...]) -> Iterator[tuple[str, float]]:
        """Yield how long training waited for the units, by kind, where that is known of all."""
        sums: dict[str, float] = {}
        for bucket in buckets:
            if bucket.unit is not None:
                ns = math.nan if bucket.exposed_ns is None else bucket.exposed_ns
                tag = exposed_tag(bucket.unit)
                sums[tag] = sums.get(tag, 0.0) + ns
        for name, total in sums.items():
            if not math.isnan(total):
                yield self._tag(name), total / 1e6

    def _errors(self, buckets: tuple[BucketRecord, ...]) -> list[tuple[str, float]]:
        """Return errors; of a unit's calls in several micro-steps the worst."""
        found: dict[str, float] = {}
        for bucket in buckets:
            unit, error = bucket.unit, bucket.error
            if error is None or bucket.join_dummy or not self._is_told(bucket):
                continue
            for name, value in (("error", error.relative_l2), ("residual", error.residual_l2)):
                if value is not None:
                    of = f"{name}_bucket{bucket.bucket}" if unit is None else unit_tag(name, unit)
                    tag = self._tag(of)
                    found[tag] = max(found.get(tag, value), value)
        return list(found.items())

    def _is_told(self, bucket: BucketRecord) -> bool:
        """Return whether a bucket has scalars of its own: of the first, or of the first units."""
        if bucket.unit is None:
            return bucket.bucket < metrics.MAX_BUCKET_LABELS
        return self._units.has(bucket.unit.name)

    def expect(self, skew: SkewRecord) -> None:
        """Remember a delay: TensorBoard takes a step that goes back for a restart, so it waits."""
        if skew.uncertainty_ns is not None:
            self._skews.append(skew)

    def _delay(self, step: int) -> Iterator[tuple[str, float]]:
        """Yield the largest delay of a step's checked buckets."""
        delays = [skew.arrival_delay_ns for skew in self._skews if skew.step == step]
        if delays:
            yield self._tag("arrival_delay_ms"), max(delays) / 1e6
        while self._skews and self._skews[0].step <= step:
            self._skews.popleft()

    def _collect(self, buckets: tuple[BucketRecord, ...]) -> None:
        """Take the durations of timed buckets and of their stages into the window."""
        windows = self._durations_ns
        for bucket in buckets:
            duration = bucket.duration_ns
            if duration is not None and bucket.exception is None:
                windows["bucket" if bucket.unit is None else "unit"].append(duration)
        for name, lengths in stage_lengths_ns(buckets).items():
            windows[name].extend(lengths)

    def write_histograms(self) -> None:
        """Write the window's histograms and begin the next window."""
        step, wall_ns = self._window_end
        for name, values in self._durations_ns.items():
            tag = self._tag(f"{name}_ms" if name in ("bucket", "unit") else f"stage_{name}_ms")
            self._file.histogram(step, wall_ns, tag, values)
        self._durations_ns.clear()

    def write_assignment(self, layout: AssignmentRecord) -> None:
        """Write a layout's table."""
        wall_ns = self._run.wall_ns(layout.time_ns)
        self._file.text(layout.step, wall_ns, self._tag("assignment"), assignment_table(layout))

    def anomaly(self, anomaly: AnomalyRecord) -> None:
        """Remember an anomaly for the next table."""
        self._anomalies.append(anomaly)
        self._anomaly_count += 1
        self._anomaly_step = max(self._anomaly_step, anomaly.step)

    def overtaken(self) -> None:
        """Take note that what was written before the run's first step is not shown any more."""
        self._anomalies_written = 0

    def write_anomalies(self, *, last: bool = False) -> None:
        """Write the table when a quarter more have come than it had, so that it stays bounded."""
        count, written = self._anomaly_count, self._anomalies_written
        if count <= written + (0 if last else written // 4):
            return
        self._anomalies_written = count
        step, wall_ns = self._anomaly_step, self._run.wall_ns(self._anomalies[-1].time_ns)
        self._file.text(
            step, wall_ns, self._tag("anomalies"), anomaly_table(self._anomalies, count)
        )
        self._file.scalars(step, wall_ns, [(self._tag("anomalies_total"), count)])
