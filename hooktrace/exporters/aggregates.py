"""The metrics table's values: running totals of what batches say.

    columns of Observer.observe --Aggregates.add--> one series of values a metric
        --snapshot--> Prometheus, OpenTelemetry

The drain pays for aggregation, whoever reads pays for formatting; the training thread has no part
in either.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

from ..records import metrics as m
from .observations import Column, Labels


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
    """One metric with its ``series``: numbers, or of a histogram ``Distribution``s.

    Keys are label values in the order of ``metric.labels``.
    """

    metric: m.Metric
    series: dict[Labels, Any]


class Aggregates:
    """Totals per metric and label values, of one exporter or of several that share them.

    All methods are safe from any thread.  The number of series is bounded by the labels of the
    table: models (``ModelLabels``), bucket labels, stages, exporters and reasons, never steps.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._totals: defaultdict[m.Metric, dict[Labels, Any]] = defaultdict(dict)
        self._gauges: dict[object, defaultdict[m.Metric, dict[Labels, float]]] = {}

    def add(self, columns: Iterable[Column], source: object = None) -> None:
        """Add a batch's observations; a reader sees all of them or none.

        Counters and histograms of all sources add up.  A gauge is the last value of its source; of
        several sources with the same labels that of the newest one is shown.
        """
        with self._lock:
            gauges = self._gauges.setdefault(source, defaultdict(dict))
            for metric, labels, values in columns:
                if metric.kind == "counter":
                    _count(self._totals[metric], labels, values)
                elif metric.kind == "histogram":
                    _spread(self._totals[metric], metric.buckets, labels, values)
                else:
                    if metric is m.REBUILD:  # it may leave fewer buckets, whose sizes would stay
                        sizes = gauges[m.BUCKET_SIZE]
                        for own in [own for own in sizes if own[: len(labels[0])] == labels[0]]:
                            del sizes[own]
                    gauges[metric].update(zip(labels, values, strict=True))

    def forget(self, source: object) -> None:
        """Stop showing the gauges of a source; what it counted stays in the totals."""
        with self._lock:
            self._gauges.pop(source, None)

    def family(self, metric: m.Metric) -> Family:
        """Return a copy of one metric, which may not have been observed yet."""
        with self._lock:
            return self._copy(metric)

    def snapshot(self, *, restart: bool = False) -> list[Family]:
        """Return a consistent copy of every metric that has been observed, in table order.

        ``restart``: counters and histograms then begin anew, while gauges stay.
        """
        with self._lock:
            families = [self._copy(metric) for metric in m.METRICS]
            if restart:
                self._totals.clear()
        return [family for family in families if family.series]

    def _copy(self, metric: m.Metric) -> Family:
        series = {labels: copy(total) for labels, total in self._totals[metric].items()}
        for gauges in self._gauges.values():
            series |= gauges[metric]
        return Family(metric, series)


def _count(totals: dict[Labels, float], labels: Sequence[Labels], values: Sequence[float]) -> None:
    for own, value in zip(labels, values, strict=True):
        totals[own] = totals.get(own, 0.0) + value


def _spread(
    states: dict[Labels, Distribution],
    bounds: tuple[float, ...],
    labels: Sequence[Labels],
    values: Sequence[float],
) -> None:
    state: Distribution | None = None
    last: Labels = ()
    for own, value in zip(labels, values, strict=True):
        if state is None or own is not last:
            state, last = states.get(own), own
            if state is None:
                state = states[own] = Distribution([0] * (len(bounds) + 1), 0.0, value, value)
        state.counts[bisect_left(bounds, value)] += 1
        state.total += value
        if value < state.least:
            state.least = value
        elif value > state.most:
            state.most = value
