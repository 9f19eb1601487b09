"""The metrics table's values: what each batch says, and running totals of it.

    Batch --observe--> observations by model --ModelLabels.fold, Aggregates.add-->
        one series of values a metric --snapshot--> Prometheus, OpenTelemetry

Warm-up and probed steps, shadow calls and incomplete steps are counted, but give no timings.
Steps, and what rarely happens, are counted from 0 on, since Prometheus' ``increase`` does not see a
series' first value.  The drain pays for aggregation, whoever reads pays for formatting; the
training thread has no part in either.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import dataclass, field

from ..records import (
    AnomalyRecord,
    Batch,
    BucketRecord,
    ClockRecord,
    ErrorRecord,
    LayoutRecord,
    SkewRecord,
    StepRecord,
)
from ..records import metrics as m
from ..records.anomalies import ANOMALIES

Labels = tuple[str, ...]

Observation = tuple[m.Metric, Labels, float]
"""A metric, label values in the order of ``metric.labels``, and one value.

A bucket gives about seven of them, so they are plain tuples: making a named one costs as much again
as all else that becomes of it.
"""


Group = tuple[tuple[str, str] | None, list[Observation]]
"""Observations of one model, named with its hook, whose labels begin with it; ``None``: of none."""


def observe(batch: Batch) -> list[Group]:
    """Return every observation of a batch, steps in order, totals of losses and failures last.

    Made once for all exporters of a drain.
    """
    if _last.batch is not batch:
        _last.batch, _last.groups = batch, list(_observe(batch))
    return _last.groups


class _Last(threading.local):
    """The batch that this thread's exporters were given last, and what it says."""

    batch: Batch | None = None
    groups: list[Group]


_last = _Last()


def _observe(batch: Batch) -> Iterator[Group]:
    run = batch.run
    labels = (run.run_id, str(run.world_size), run.backend, run.torch_version)
    yield None, [(m.RUN, labels, 1.0)]
    for layout in batch.of(LayoutRecord):
        model = layout.model, layout.hook
        yield model, list(_observe_layout(layout, model))
    for step, buckets in batch.steps:
        model = step.model, step.hook
        yield (
            model,
            [
                *_observe_step(step, model),
                *_observe_sent(step, buckets, model),
                *_observe_buckets(buckets, model, timed=step.counts),
            ],
        )
    for anomaly in batch.of(AnomalyRecord):
        model = anomaly.model, anomaly.hook
        yield model, [(m.ANOMALIES, (*model, anomaly.kind), 1)]
    for skew in batch.of(SkewRecord):
        if skew.uncertainty_ns is not None:
            model = skew.model, skew.hook
            yield model, [(m.ARRIVAL_LAG, model, skew.lag_ns / 1e9)]
    yield None, list(_observe_process(batch))


def _observe_process(batch: Batch) -> Iterator[Observation]:
    for clock in batch.of(ClockRecord)[-1:]:
        yield (m.CLOCK_OFFSET, (), clock.offset_ns / 1e9)
        yield (m.CLOCK_UNCERTAINTY, (), clock.uncertainty_ns / 1e9)
    for exporter, count in batch.failures.items():
        yield (m.EXPORTER_FAILURES, (exporter,), count)
    own = (f"{e}_{what}" for e in batch.failures for what in m.LOSSES_OF_EXPORTERS.get(e, ()))
    for reason, count in (dict.fromkeys((*m.LOSS_REASONS, *own), 0) | batch.losses).items():
        yield (m.RECORDS_LOST, (reason,), count)


def _observe_layout(layout: LayoutRecord, model: Labels) -> Iterator[Observation]:
    yield (m.GENERATION, model, layout.generation)
    for kind in ANOMALIES:
        yield (m.ANOMALIES, (*model, kind), 0)
    for counter in (m.STEPS, m.WARMUP_STEPS, m.SHADOW_STEPS, m.INCOMPLETE_STEPS):
        yield (counter, model, 0)
    for entry in layout.buckets:
        labels = (*model, m.bucket_label(entry.bucket))
        yield (m.GRADIENT_BYTES, labels, 0)
        if entry.bucket < m.MAX_BUCKET_LABELS:
            yield (m.BUCKET_SIZE, labels, entry.gradient_bytes)


def _observe_step(step: StepRecord, labels: Labels) -> Iterator[Observation]:
    yield (m.STEPS, labels, 1)
    yield (m.WARMUP_STEPS, labels, int(step.warmup))
    yield (m.SHADOW_STEPS, labels, int(step.shadow))
    yield (m.INCOMPLETE_STEPS, labels, int(not step.complete))
    if step.previous_period_ns is not None:  # of a step that counts, whether or not this one does
        yield (m.STEP_PERIOD, labels, step.previous_period_ns / 1e9)
    if not step.counts:
        return
    for metric, ns in ((m.EXPOSED, step.exposed_ns), (m.BUSY, step.busy_ns)):
        if ns is not None:
            yield (metric, labels, ns / 1e9)
    if step.bus_bytes is not None and step.wire_busy_ns is not None:  # one over the other: busbw
        yield (m.BUS_BYTES, labels, step.bus_bytes)
        yield (m.WIRE_BUSY, labels, step.wire_busy_ns / 1e9)


def _observe_sent(
    step: StepRecord, buckets: tuple[BucketRecord, ...], labels: Labels
) -> Iterator[Observation]:
    if step.wire_bytes is None or not step.settled:
        return
    if step.compression_ratio is not None:
        yield (m.COMPRESSION_RATIO, labels, step.compression_ratio)
    sums: Counter[tuple[str, str]] = Counter()
    for transfer in step.sent or [t for bucket in buckets for t in bucket.transfers]:
        sums[transfer.collective, transfer.dtype] += transfer.wire_bytes
    for kind, size in sums.items():
        yield (m.STEP_WIRE_BYTES, (*labels, *kind), size)


def _observe_buckets(
    buckets: Iterable[BucketRecord], model: Labels, *, timed: bool
) -> Iterator[Observation]:
    for bucket in buckets:
        labels = (*model, m.bucket_label(bucket.bucket))
        yield (m.GRADIENT_BYTES, labels, bucket.gradient_bytes)
        if bucket.wire_bytes is not None and bucket.sent is None:  # a counter has to see all steps
            yield (m.WIRE_BYTES, labels, bucket.wire_bytes)
        if bucket.error is not None and not bucket.shadow:
            yield from _observe_error(bucket.error, labels)
        interval = bucket.interval_ns
        if timed and interval is not None and bucket.exception is None:
            yield (m.BUCKET_DURATION, labels, (interval[1] - interval[0]) / 1e9)
            for name, ns in bucket.stage_totals_ns().items():
                yield (m.STAGE_DURATION, (*model, name), ns / 1e9)


def _observe_error(error: ErrorRecord, labels: Labels) -> Iterator[Observation]:
    if error.relative_l2 is not None:
        yield (m.COMPRESSION_ERROR, labels[:2], error.relative_l2)
        yield (m.BUCKET_ERROR, labels, error.relative_l2)
    if error.cosine is not None:
        yield (m.BUCKET_COSINE, labels, error.cosine)


@dataclass(slots=True)
class Distribution:
    """A histogram's state.

    ``counts[i]`` observations were at most ``metric.buckets[i]`` and more than the bound before;
    the last count is of those above every bound.  ``total`` is their sum, ``least`` and ``most``
    the extremes, in the base unit.
    """

    counts: list[int]
    total: float
    least: float
    most: float

    def __copy__(self) -> Distribution:
        return Distribution(self.counts.copy(), self.total, self.least, self.most)


@dataclass(slots=True)
class Family:
    """One metric with its series: ``values`` (single numbers) or ``distributions`` (histograms).

    Keys are label values in the order of ``metric.labels``.
    """

    metric: m.Metric
    values: dict[Labels, float] = field(default_factory=dict)
    distributions: dict[Labels, Distribution] = field(default_factory=dict)

    def __copy__(self) -> Family:
        found = {labels: copy(state) for labels, state in self.distributions.items()}
        return Family(self.metric, self.values.copy(), found)

    @property
    def add(self) -> Callable[[Labels, float], None]:
        """Takes one observation: counters add up, gauges and totals so far are the last one."""
        metric = self.metric
        if metric.kind == "histogram":
            return self._spread
        if metric.kind == "counter" and not metric.cumulative:
            return self._count
        return self.values.__setitem__

    def _count(self, labels: Labels, value: float) -> None:
        self.values[labels] = self.values.get(labels, 0.0) + value

    def _spread(self, labels: Labels, value: float) -> None:
        bounds = self.metric.buckets
        state = self.distributions.get(labels)
        if state is None:
            state = Distribution([0] * (len(bounds) + 1), 0.0, value, value)
            self.distributions[labels] = state
        state.counts[bisect_left(bounds, value)] += 1
        state.total += value
        if value < state.least:
            state.least = value
        elif value > state.most:
            state.most = value


class Aggregates:
    """Totals per metric and label values.  All methods are safe from any thread.

    The number of series is bounded by the labels of the table: models (``ModelLabels``), bucket
    labels, stages, exporters and reasons, never steps.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._families = {metric: Family(metric) for metric in m.METRICS}
        self._add = {metric: family.add for metric, family in self._families.items()}

    def add(self, observations: Iterable[Observation]) -> None:
        """Add a batch's observations; a reader sees all of them or none."""
        add = self._add
        with self._lock:
            for metric, labels, value in observations:
                if metric is m.GENERATION:
                    self._forget_sizes(labels)
                add[metric](labels, value)

    def _forget_sizes(self, model: Labels) -> None:
        # A rebuild may leave fewer buckets; the sizes of the old ones would stay.
        sizes = self._families[m.BUCKET_SIZE].values
        for labels in [labels for labels in sizes if labels[: len(model)] == model]:
            del sizes[labels]

    def family(self, metric: m.Metric) -> Family:
        """Return a copy of one metric, which may not have been observed yet."""
        with self._lock:
            return copy(self._families[metric])

    def snapshot(self) -> list[Family]:
        """Return a consistent copy of every metric that has been observed, in table order."""
        with self._lock:
            families = [copy(family) for family in self._families.values()]
        return [family for family in families if family.values or family.distributions]
