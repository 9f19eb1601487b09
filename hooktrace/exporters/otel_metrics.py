"""Aggregates for OpenTelemetry: as whole ``MetricsData``, or by the application's instruments.

    ReaderTotals --asked by its reader once an interval--> MetricsData --> the reader's exporter
    Aggregates --Instruments: observable counters and gauges--> the application's readers
    values of histograms --recorded one by one--> the application's readers

Recording costs 8 to 14 µs a value in an SDK, and a bucket has five: more than the drain may take
for all that it does.  The aggregates cost a tenth, so the own pipeline has no instruments.  A
histogram cannot be observed, so in an application's provider its values are recorded.  Importing
this imports opentelemetry.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakKeyDictionary

from opentelemetry import metrics as api
from opentelemetry.sdk.metrics import Counter
from opentelemetry.sdk.metrics import export as sdk
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from ..records.metrics import METRICS, Metric
from .aggregates import Aggregates, Family
from .observations import Column, Labels

Attributes = dict[str, str | int]


class ReaderTotals(Aggregates):
    """What one reader of the own pipeline gets whenever it asks: totals since now.

    A reader that wants deltas, as ``OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE`` may say,
    gets what was added since it last asked.  A forked child gets nothing: the metrics are its
    parent's.
    """

    def __init__(self, reader: sdk.MetricReader, resource: Resource, version: str) -> None:
        super().__init__()
        # Where the SDK itself looks up what a reader wants of each kind of instrument.
        wanted = reader._instrument_class_temporality
        self._temporality = next(wanted[kind] for kind in wanted if issubclass(kind, Counter))
        self._resource = resource
        self._scope = InstrumentationScope("hooktrace", version)
        self._start_ns = time.time_ns()
        self._pid = os.getpid()
        # What a MeterProvider does with each of its readers; here the totals are the provider.
        reader._set_collect_callback(self._collect)  # type: ignore[arg-type]

    def _collect(self, *_: object, **_options: object) -> sdk.MetricsData | None:
        if os.getpid() != self._pid:
            return None
        is_delta = self._temporality is sdk.AggregationTemporality.DELTA
        families, now_ns = self.snapshot(restart=is_delta), time.time_ns()
        found = [self._metric(family, now_ns) for family in families]
        if is_delta:
            self._start_ns = now_ns
        scopes = [sdk.ScopeMetrics(self._scope, found, schema_url="")]
        return sdk.MetricsData([sdk.ResourceMetrics(self._resource, scopes, schema_url="")])

    def _metric(self, family: Family, now_ns: int) -> sdk.Metric:
        metric = family.metric
        is_histogram = metric.kind == "histogram"
        points: list[Any] = []
        for labels, total in family.series.items():
            of_point = _attributes(metric, labels), self._start_ns, now_ns
            points.append(
                sdk.HistogramDataPoint(
                    *of_point, sum(total.counts), total.total, total.counts, metric.buckets,
                    total.least, total.most,
                )
                if is_histogram
                else sdk.NumberDataPoint(*of_point, total)
            )  # fmt: skip
        data: sdk.Sum | sdk.Gauge | sdk.Histogram = sdk.Gauge(points)
        if metric.kind == "counter":
            data = sdk.Sum(points, self._temporality, is_monotonic=True)
        elif is_histogram:
            data = sdk.Histogram(points, self._temporality)
        return sdk.Metric(metric.otel_name, metric.help, metric.unit, data)


def _attributes(metric: Metric, labels: Labels) -> Attributes:
    return dict(zip(metric.labels, labels, strict=True))


class Instruments:
    """The metrics table in a provider of the application, with the rank as an attribute."""

    def __init__(self, provider: api.MeterProvider, version: str, rank: int) -> None:
        self._rank: Attributes = {"hooktrace.rank": rank}
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
            values = self._aggregates.family(metric).series.items()
            return [api.Observation(v, self._attributes_of(metric, own)) for own, v in values]

        return observe

    def _attributes_of(self, metric: Metric, labels: Labels) -> Attributes:
        return self._rank | _attributes(metric, labels)


_shared: WeakKeyDictionary[api.MeterProvider, Instruments] = WeakKeyDictionary()


def instruments_of(provider: api.MeterProvider, version: str, rank: int) -> Instruments:
    """Return a provider's instruments, which all exporters of the process share.

    An SDK ignores the callbacks of a second instrument of the same name.
    """
    found = _shared.get(provider)
    if found is None:
        found = _shared[provider] = Instruments(provider, version, rank)
    return found
