"""Running totals of the metrics table: the drain adds observations, others read snapshots.

    observe(batch) --add--> one series of values a metric --snapshot--> Prometheus, OpenTelemetry

The drain pays for aggregation, whoever reads pays for formatting; the training thread has no part
in either.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from ..records.metrics import BUCKET_SIZE, GENERATION, METRICS, Metric
from .observations import Observation

Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Distribution:
    """A histogram's state.

    ``counts[i]`` observations were at most ``metric.buckets[i]`` and more than the bound before;
    the last count is of those above every bound.  ``total`` is their sum, ``least`` and ``most``
    the extremes, in the base unit.
    """

    counts: tuple[int, ...]
    total: float
    least: float
    most: float


@dataclass(frozen=True, slots=True)
class Family:
    """One metric with its series: ``values`` (single numbers) or ``distributions`` (histograms).

    Keys are label values in the order of ``metric.labels``.
    """

    metric: Metric
    values: dict[Labels, float] = field(default_factory=dict)
    distributions: dict[Labels, Distribution] = field(default_factory=dict)


class _Series(Protocol):
    """All series of one metric."""

    def add(self, labels: Labels, value: float) -> None:
        """Take one observation."""

    def family(self, metric: Metric) -> Family:
        """Return a copy."""


class _Latest:
    """The last value of each series: gauges, and counters that are observed as totals so far."""

    def __init__(self) -> None:
        self._values: dict[Labels, float] = {}

    def add(self, labels: Labels, value: float) -> None:
        self._values[labels] = value

    def forget(self, prefix: Labels) -> None:
        """Forget the series whose labels begin so."""
        for labels in [labels for labels in self._values if labels[: len(prefix)] == prefix]:
            del self._values[labels]

    def family(self, metric: Metric) -> Family:
        return Family(metric, values=dict(self._values))


class _Sum(_Latest):
    def add(self, labels: Labels, value: float) -> None:
        values = self._values
        values[labels] = values.get(labels, 0.0) + value


class _Info(_Latest):
    """One series at a time."""

    def add(self, labels: Labels, value: float) -> None:
        if labels not in self._values:
            self._values.clear()
        self._values[labels] = value


class _Cell:
    """One series of a histogram."""

    __slots__ = ("counts", "least", "most", "total")

    def __init__(self, bounds: int, first: float) -> None:
        self.counts = [0] * (bounds + 1)
        self.total = 0.0
        self.least = self.most = first


class _Histogram:
    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._cells: dict[Labels, _Cell] = {}

    def add(self, labels: Labels, value: float) -> None:
        cell = self._cells.get(labels)
        if cell is None:
            cell = self._cells[labels] = _Cell(len(self._bounds), value)
        cell.counts[bisect_left(self._bounds, value)] += 1
        cell.total += value
        if value < cell.least:
            cell.least = value
        elif value > cell.most:
            cell.most = value

    def family(self, metric: Metric) -> Family:
        found = {
            labels: Distribution(tuple(c.counts), c.total, c.least, c.most)
            for labels, c in self._cells.items()
        }
        return Family(metric, distributions=found)


def _series_of(metric: Metric) -> _Series:
    if metric.kind == "histogram":
        return _Histogram(metric.buckets)
    if metric.kind == "info":
        return _Info()
    return _Sum() if metric.kind == "counter" and not metric.cumulative else _Latest()


class Aggregates:
    """Totals per metric and label values.  All methods are safe from any thread.

    The number of series is bounded by the labels of the table: models, hooks, bucket labels,
    stages, exporters and reasons, never steps.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bucket_sizes = _Latest()
        self._series = {metric: _series_of(metric) for metric in METRICS}
        self._series[BUCKET_SIZE] = self._bucket_sizes

    def add(self, observations: Iterable[Observation]) -> None:
        """Add a batch's observations; a reader sees all of them or none."""
        series = self._series
        with self._lock:
            for metric, labels, value in observations:
                if metric is GENERATION:
                    # A rebuild may leave fewer buckets; the sizes of the old ones would stay.
                    self._bucket_sizes.forget(labels)
                series[metric].add(labels, value)

    def family(self, metric: Metric) -> Family:
        """Return a copy of one metric, which may not have been observed yet."""
        with self._lock:
            return self._series[metric].family(metric)

    def snapshot(self) -> list[Family]:
        """Return a consistent copy of every metric that has been observed, in table order."""
        with self._lock:
            families = [series.family(metric) for metric, series in self._series.items()]
        return [family for family in families if family.values or family.distributions]
