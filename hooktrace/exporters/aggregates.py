"""The metrics table's values: running totals of what batches say.

    observations --ModelLabels.fold, Aggregates.add--> one series of values a metric
        --snapshot--> Prometheus, OpenTelemetry

The drain pays for aggregation, whoever reads pays for formatting; the training thread has no part
in either.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field

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

    def __add__(self, other: Distribution) -> Distribution:
        counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]
        extremes = min(self.least, other.least), max(self.most, other.most)
        return Distribution(counts, self.total + other.total, *extremes)


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

    def include(self, other: Family) -> None:
        """Add what another tracer counted; of gauges with the same labels the last value stays."""
        for labels, value in other.values.items():
            before = self.values.get(labels, 0.0) if self.metric.kind == "counter" else 0.0
            self.values[labels] = before + value
        for labels, state in other.distributions.items():
            mine = self.distributions.get(labels)
            self.distributions[labels] = state if mine is None else mine + state

    @property
    def add(self) -> Callable[[Sequence[Labels], Sequence[float]], None]:
        """Takes observations: counters add up, gauges and totals so far are the last one."""
        metric = self.metric
        if metric.kind == "histogram":
            return self._spread
        if metric.kind == "counter" and not metric.cumulative:
            return self._count
        return self._replace

    def _replace(self, labels: Sequence[Labels], values: Sequence[float]) -> None:
        self.values.update(zip(labels, values, strict=True))

    def _count(self, labels: Sequence[Labels], values: Sequence[float]) -> None:
        totals = self.values
        for own, value in zip(labels, values, strict=True):
            totals[own] = totals.get(own, 0.0) + value

    def _spread(self, labels: Sequence[Labels], values: Sequence[float]) -> None:
        bounds, states = self.metric.buckets, self.distributions
        for own, value in zip(labels, values, strict=True):
            state = states.get(own)
            if state is None:
                state = states[own] = Distribution([0] * (len(bounds) + 1), 0.0, value, value)
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

    def add(self, observations: Iterable[Column]) -> None:
        """Add a batch's observations; a reader sees all of them or none."""
        add = self._add
        with self._lock:
            for metric, labels, values in observations:
                if metric is m.GENERATION:
                    self._forget_sizes(*labels)
                add[metric](labels, values)

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
