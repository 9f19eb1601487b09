"""Running totals of the metrics table: the drain adds batches, a scrape reads snapshots.

Only the drain pays for aggregation and only the scraping thread pays for formatting; the training
thread has no part in either.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

from ..records import Batch, LayoutRecord
from ..records.metrics import BUCKET_SIZE, METRICS, Metric, Observation, observe

__all__ = ["Aggregates", "Distribution", "Family"]

Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Distribution:
    """A histogram's state.

    ``counts[i]`` observations were at most ``metric.buckets[i]`` and more than the bound before;
    the last count is of those above every bound.  ``total`` is their sum in the base unit.
    """

    counts: tuple[int, ...]
    total: float


@dataclass(frozen=True, slots=True)
class Family:
    """One metric with its series: ``values`` (single numbers) or ``distributions`` (histograms).

    Keys are label values in the order of ``metric.labels``.
    """

    metric: Metric
    values: dict[Labels, float]
    distributions: dict[Labels, Distribution]


class _Histogram:
    __slots__ = ("counts", "total")

    def __init__(self, bounds: int) -> None:
        self.counts = [0] * (bounds + 1)
        self.total = 0.0


class Aggregates:
    """Totals per metric and label values.  ``add`` and ``snapshot`` are safe from any thread.

    The number of series is bounded by the labels of the table: models, hooks, bucket labels,
    stages, exporters and reasons, never steps.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Keyed by name: hashing a Metric hashes all of its bounds.
        self._values: dict[str, dict[Labels, float]] = {m.name: {} for m in METRICS}
        self._histograms: dict[str, dict[Labels, _Histogram]] = {m.name: {} for m in METRICS}

    def add(self, batch: Batch) -> None:
        """Add everything that a batch observes; a snapshot sees all of it or nothing."""
        observations = list(observe(batch))
        models = {(layout.model, layout.hook) for layout in batch.of(LayoutRecord)}
        with self._lock:
            self._forget_layouts(models)
            for observation in observations:
                self._add(observation)

    def _forget_layouts(self, models: Iterable[Labels]) -> None:
        # A rebuild may leave fewer buckets; the sizes of the old ones would stay for ever.
        sizes = self._values[BUCKET_SIZE.name]
        for model in models:
            for labels in [labels for labels in sizes if labels[:2] == model]:
                del sizes[labels]

    def _add(self, observation: Observation) -> None:
        metric, labels, value = observation.metric, observation.labels, observation.value
        if metric.kind == "histogram":
            series = self._histograms[metric.name]
            state = series.get(labels)
            if state is None:
                state = series[labels] = _Histogram(len(metric.buckets))
            state.counts[bisect_left(metric.buckets, value)] += 1
            state.total += value
            return
        values = self._values[metric.name]
        if metric.kind == "counter" and not metric.cumulative:
            values[labels] = values.get(labels, 0.0) + value
            return
        if metric.kind == "info":
            values.clear()
        values[labels] = value

    def snapshot(self) -> list[Family]:
        """Return a consistent copy of every metric that has been observed, in table order."""
        with self._lock:
            values = {name: dict(series) for name, series in self._values.items()}
            distributions = {
                name: {k: Distribution(tuple(h.counts), h.total) for k, h in series.items()}
                for name, series in self._histograms.items()
            }
        families = (Family(m, values[m.name], distributions[m.name]) for m in METRICS)
        return [family for family in families if family.values or family.distributions]
