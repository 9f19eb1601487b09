"""The metrics table as OpenTelemetry instruments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ..records import Batch, LayoutRecord
from ..records.metrics import BUCKET_SIZE, METRICS, Metric, bucket_label
from .observations import observe

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter

__all__ = ["Instruments"]

Labels = tuple[str, ...]
Attributes = dict[str, str | int]
Record = Callable[[float, Attributes], None]


class Instruments:
    """One instrument for each metric; ``record`` adds a batch to them.

    ``common`` are attributes on every measurement, next to the metric's labels.  A measurement
    costs about 7 us in the SDK, so counters are added up per batch and of a gauge's values only
    the last is set; every value of a histogram is recorded.
    """

    def __init__(self, meter: Meter, common: Mapping[str, str | int]) -> None:
        self._common = dict(common)
        self._record = {metric.name: _create(meter, metric) for metric in METRICS}
        self._attributes: dict[tuple[str, Labels], Attributes] = {}
        self._totals: dict[tuple[str, Labels], float] = {}
        self._bucket_counts: dict[Labels, int] = {}

    def record(self, batch: Batch) -> None:
        """Record everything that a batch observes."""
        pending: dict[tuple[str, Labels], tuple[Metric, float]] = {}
        for layout in batch.of(LayoutRecord):
            self._forget_buckets(layout)
        for observation in observe(batch):
            metric, labels, value = observation.metric, observation.labels, observation.value
            key = (metric.name, labels)
            if metric.kind == "histogram":
                self._record[metric.name](value, self._attributes_of(metric, labels))
            elif metric.kind == "counter" and not metric.cumulative:
                pending[key] = (metric, pending[key][1] + value if key in pending else value)
            else:
                pending[key] = (metric, value)
        for key, (metric, value) in pending.items():
            amount = self._increase(key, value) if metric.cumulative else value
            self._record[metric.name](amount, self._attributes_of(metric, key[1]))

    def _attributes_of(self, metric: Metric, labels: Labels) -> Attributes:
        key = (metric.name, labels)
        found = self._attributes.get(key)
        if found is None:
            found = {**self._common, **dict(zip(metric.labels, labels, strict=True))}
            self._attributes[key] = found
        return found

    def _increase(self, key: tuple[str, Labels], total: float) -> float:
        before = self._totals.get(key, 0.0)
        self._totals[key] = max(total, before)
        return max(0.0, total - before)

    def _forget_buckets(self, layout: LayoutRecord) -> None:
        # A gauge's series cannot be taken back: a bucket that a rebuild removed has size 0.
        model = (layout.model, layout.hook)
        count = len(layout.buckets)
        for index in range(count, self._bucket_counts.get(model, 0)):
            labels = (*model, bucket_label(index))
            if (BUCKET_SIZE.name, labels) in self._attributes:
                self._record[BUCKET_SIZE.name](0, self._attributes_of(BUCKET_SIZE, labels))
        self._bucket_counts[model] = count


def _create(meter: Meter, metric: Metric) -> Record:
    name, unit, text = metric.otel_name, metric.unit, metric.help
    if metric.kind == "counter":
        return meter.create_counter(name, unit, text).add
    if metric.kind == "histogram":
        bounds = list(metric.buckets)
        histogram = meter.create_histogram(
            name, unit, text, explicit_bucket_boundaries_advisory=bounds
        )
        return histogram.record
    return meter.create_gauge(name, unit, text).set
