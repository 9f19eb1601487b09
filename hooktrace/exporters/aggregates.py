"""Running totals of the metrics table: the drain adds observations, others read snapshots.

    observe(batch) --add--> one series of values a metric --snapshot--> Prometheus, OpenTelemetry

The drain pays for aggregation, whoever reads pays for formatting; the training thread has no part
in either.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass, field

from ..records.metrics import BUCKET_SIZE, GENERATION, METRICS, Metric
from .observations import Observation

Labels = tuple[str, ...]


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

    metric: Metric
    values: dict[Labels, float] = field(default_factory=dict)
    distributions: dict[Labels, Distribution] = field(default_factory=dict)

    def __copy__(self) -> Family:
        found = {labels: copy(state) for labels, state in self.distributions.items()}
        return Family(self.metric, self.values.copy(), found)

    def add(self, labels: Labels, value: float) -> None:
        """Take one observation: counters add up, gauges and totals so far are the last one."""
        metric, values = self.metric, self.values
        if metric.kind == "histogram":
            self._spread(labels, value)
        elif metric.kind == "counter" and not metric.cumulative:
            values[labels] = values.get(labels, 0.0) + value
        else:
            values[labels] = value

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

    The number of series is bounded by the labels of the table: models, hooks, bucket labels,
    stages, exporters and reasons, never steps.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._families = {metric: Family(metric) for metric in METRICS}

    def add(self, observations: Iterable[Observation]) -> None:
        """Add a batch's observations; a reader sees all of them or none."""
        families = self._families
        with self._lock:
            for metric, labels, value in observations:
                if metric is GENERATION:
                    self._forget_sizes(labels)
                families[metric].add(labels, value)

    def _forget_sizes(self, model: Labels) -> None:
        # A rebuild may leave fewer buckets; the sizes of the old ones would stay.
        sizes = self._families[BUCKET_SIZE].values
        for labels in [labels for labels in sizes if labels[: len(model)] == model]:
            del sizes[labels]

    def family(self, metric: Metric) -> Family:
        """Return a copy of one metric, which may not have been observed yet."""
        with self._lock:
            return copy(self._families[metric])

    def snapshot(self) -> list[Family]:
        """Return a consistent copy of every metric that has been observed, in table order."""
        with self._lock:
            families = [copy(family) for family in self._families.values()]
        return [family for family in families if family.values or family.distributions]
