"""Aggregates for OpenTelemetry: as whole ``MetricsData``, or by the application's instruments.

    Aggregates --give_metrics: asked by a reader once an interval--> MetricsData --> its exporter
    Aggregates --Instruments: observable counters and gauges--> the application's readers
    values of histograms --recorded one by one--> the application's readers
    a bucket that got a span --Exemplars--> data points

Recording costs 8 to 14 µs a value in an SDK, and a bucket has five: more than the drain may take
for all that it does.  The aggregates cost a tenth, so the own pipeline has no instruments.  A
histogram cannot be observed, so in an application's provider its values are recorded.  Importing
this imports opentelemetry.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakKeyDictionary

from opentelemetry import metrics as api
from opentelemetry.sdk.metrics import Counter, Exemplar
from opentelemetry.sdk.metrics import export as sdk
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext

from ..records import BucketRecord
from ..records.metrics import BUCKET_DURATION, METRICS, Metric, bucket_label
from .aggregates import Aggregates, Distribution, Family
from .observations import Column, Labels

Attributes = dict[str, str | int]

_DELTA = sdk.AggregationTemporality.DELTA


class Exemplars:
    """The spans that durations of buckets lead to; written by the drain, read by readers' threads.

    Of each series the last one within each bound is kept, so that a slow bucket's stays findable
    among fast ones.
    """

    def __init__(self) -> None:
        self._found: dict[Labels, dict[int, tuple[int, Exemplar]]] = {}

    def keep(self, bucket: BucketRecord, span: SpanContext, wall_ns: int) -> None:
        """Keep where a bucket that the histogram counts is shown, if a backend gets that span."""
        if (
            bucket.unit is not None
            or bucket.duration_ns is None
            or bucket.exception is not None
            or not span.trace_flags.sampled
        ):
            return
        seconds = bucket.duration_ns / 1e9
        labels = bucket.model, bucket.hook, bucket_label(bucket.bucket)
        exemplar = Exemplar({}, seconds, wall_ns, span.span_id, span.trace_id)
        bound = bisect_left(BUCKET_DURATION.buckets, seconds)
        self._found.setdefault(labels, {})[bound] = time.time_ns(), exemplar

    def since(self, labels: Labels, ns: int) -> list[Exemplar]:
        """Return those of a series that were kept after a moment of ``time.time_ns``."""
        kept = list(self._found.get(labels, {}).values())
        return [exemplar for at_ns, exemplar in kept if at_ns > ns]


def give_metrics(
    reader: sdk.MetricReader,
    aggregates: Aggregates,
    resource: Resource,
    version: str,
    exemplars: Exemplars | None = None,
) -> None:
    """Have the reader get what the aggregates hold whenever it asks: totals since now.

    A reader that wants deltas, as ``OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE`` may say,
    gets what was added since it last asked.  A forked child gets nothing: the metrics are its
    parent's.  ``exemplars``: the spans of samples, of which it gets the new ones each time.
    """
    # Where the SDK itself looks up what a reader wants of each kind of instrument.
    wanted = reader._instrument_class_temporality
    temporality = next(wanted[kind] for kind in wanted if issubclass(kind, Counter))
    interval = _Interval(temporality, exemplars or Exemplars())
    scope = InstrumentationScope("hooktrace", version)
    pid = os.getpid()

    def collect(*_: object, **_options: object) -> sdk.MetricsData | None:
        if os.getpid() != pid:
            return None
        scopes = [sdk.ScopeMetrics(scope, interval.end(aggregates.snapshot()), schema_url="")]
        return sdk.MetricsData([sdk.ResourceMetrics(resource, scopes, schema_url="")])

    # What a MeterProvider does with each of its readers; here the aggregates are the provider.
    reader._set_collect_callback(collect)  # type: ignore[arg-type]


class _Interval:
    """The time that a reader's next metrics are about, and the totals at its beginning."""

    def __init__(self, temporality: sdk.AggregationTemporality, exemplars: Exemplars) -> None:
        self._temporality = temporality
        self._exemplars = exemplars
        self._start_ns = self._now_ns = self._asked_ns = time.time_ns()
        self._before: dict[Metric, Family] = {}

    def end(self, families: list[Family]) -> list[sdk.Metric]:
        """Return metrics up to now; with deltas the next interval begins."""
        self._asked_ns, self._now_ns = self._now_ns, time.time_ns()
        found = [self._metric(family) for family in families]
        if self._temporality is _DELTA:
            self._start_ns = self._now_ns
            self._before = {family.metric: family for family in families}
        return found

    def _metric(self, family: Family) -> sdk.Metric:
        metric = family.metric
        before = self._before.get(metric, Family(metric, {}, {}))
        points: list[Any] = [
            self._histogram(metric, labels, state, before.distributions.get(labels))
            for labels, state in family.distributions.items()
        ]
        for labels, value in family.values.items():
            added = value - before.values.get(labels, 0.0) if metric.kind == "counter" else value
            times = self._start_ns, self._now_ns
            points.append(sdk.NumberDataPoint(_attributes(metric, labels), *times, added))
        data: sdk.Sum | sdk.Gauge | sdk.Histogram = sdk.Gauge(points)
        if metric.kind == "counter":
            data = sdk.Sum(points, self._temporality, is_monotonic=True)
        elif metric.kind == "histogram":
            data = sdk.Histogram(points, self._temporality)
        return sdk.Metric(metric.otel_name, metric.help, metric.unit, data)

    def _histogram(
        self, metric: Metric, labels: Labels, state: Distribution, before: Distribution | None
    ) -> sdk.HistogramDataPoint:
        counts, total = state.counts, state.total
        extremes: tuple[Any, Any] = (state.least, state.most)
        if before is not None:
            counts = [a - b for a, b in zip(counts, before.counts, strict=True)]
            total, extremes = total - before.total, (None, None)  # of an interval: not known
        is_linked = metric is BUCKET_DURATION
        return sdk.HistogramDataPoint(
            _attributes(metric, labels), self._start_ns, self._now_ns,
            sum(counts), total, counts, metric.buckets, *extremes,
            self._exemplars.since(labels, self._asked_ns) if is_linked else (),
        )  # fmt: skip


def _attributes(metric: Metric, labels: Labels) -> Attributes:
    return dict(zip(metric.labels, labels, strict=True))


class Instruments:
    """The metrics table in a provider of the application, with the rank as an attribute."""

    def __init__(self, provider: api.MeterProvider, version: str, rank: int) -> None:
        self._rank: Attributes = {"hooktrace.rank": rank}
        self._attributes: dict[tuple[Metric, Labels], Attributes] = {}
        self._aggregates = Aggregates()
        self._pid = os.getpid()
        self._record: dict[Metric, Callable[[float, Attributes], None]] = {}
        meter = provider.get_meter("hooktrace", version)
        for metric in METRICS:
            about = metric.unit, metric.help
            if metric.kind == "histogram":
                self._record[metric] = meter.create_histogram(
                    metric.otel_name, *about, explicit_bucket_boundaries_advisory=metric.buckets
                ).record
            elif metric.kind == "counter":
                meter.create_observable_counter(metric.otel_name, [self._shown(metric)], *about)
            else:
                meter.create_observable_gauge(metric.otel_name, [self._shown(metric)], *about)

    def add(self, columns: Iterable[Column], source: object) -> None:
        """Add up counters and gauges, record the values of histograms."""
        totals: list[Column] = []
        for column in columns:
            metric, labels, values = column
            if metric in self._record:
                for own, value in zip(labels, values, strict=True):
                    self._record[metric](value, self._attributes_of(metric, own))
            else:
                totals.append(column)
        self._aggregates.add(totals, source)

    def _shown(self, metric: Metric) -> Callable[[api.CallbackOptions], list[api.Observation]]:
        """Return what a reader asks for a metric's values; it gets none in a forked child."""

        def observe(_: api.CallbackOptions) -> list[api.Observation]:
            if os.getpid() != self._pid:
                return []
            values = self._aggregates.family(metric).values.items()
            return [api.Observation(v, self._attributes_of(metric, own)) for own, v in values]

        return observe

    def _attributes_of(self, metric: Metric, labels: Labels) -> Attributes:
        key = (metric, labels)
        found = self._attributes.get(key)
        if found is None:
            found = self._attributes[key] = self._rank | _attributes(metric, labels)
        return found


_shared: WeakKeyDictionary[api.MeterProvider, Instruments] = WeakKeyDictionary()


def instruments_of(provider: api.MeterProvider, version: str, rank: int) -> Instruments:
    """Return a provider's instruments, which all exporters of the process share.

    An SDK ignores the callbacks of a second instrument of the same name.
    """
    found = _shared.get(provider)
    if found is None:
        found = _shared[provider] = Instruments(provider, version, rank)
    return found
