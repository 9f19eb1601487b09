"""Totals in prometheus_client's form of them, as it asks at each scrape.

families of values --TotalsCollector--> metric families, each with the labels of the target
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from ..records.metrics import BUCKET_DURATION, METRICS
from .aggregates import Distribution, Family

if TYPE_CHECKING:
    from prometheus_client.core import Metric as MetricFamily

Pairs = tuple[tuple[str, str], ...]
"""Names and values of labels."""


class Totals(NamedTuple):
    """What to show now: families, and labels that stand on each of their series."""

    families: list[Family]
    labels: Pairs = ()


class TotalsCollector:
    """What prometheus_client calls for each scrape; ``read`` gives what is known then.

    Without ``bucket_histograms`` durations of buckets are shown by their sum and count alone.
    """

    def __init__(self, read: Callable[[], Totals], *, bucket_histograms: bool = True) -> None:
        self._read = read
        self._sums_only = () if bucket_histograms else (BUCKET_DURATION,)

    def describe(self) -> Iterator[MetricFamily]:
        """Yield the names, by which a registry refuses a second collector of the same."""
        return self._families(Totals([Family(metric) for metric in METRICS]))

    def collect(self) -> Iterator[MetricFamily]:
        """Yield all series."""
        return self._families(self._read())

    def _families(self, totals: Totals) -> Iterator[MetricFamily]:
        for family in totals.families:
            if family.metric.kind == "info":
                yield _info(family, totals.labels)
            elif family.metric in self._sums_only:
                yield _summary(family, totals.labels)
            elif family.metric.kind == "histogram":
                yield _histogram(family, totals.labels)
            else:
                yield _single(family, totals.labels)


def _info(family: Family, extra: Pairs) -> MetricFamily:
    from prometheus_client.core import InfoMetricFamily

    metric = family.metric
    info = InfoMetricFamily(metric.name, metric.help)
    for labels in family.values:
        info.add_metric([], dict(zip(metric.labels, labels, strict=True)) | dict(extra))
    return info


def _single(family: Family, extra: Pairs) -> MetricFamily:
    from prometheus_client import core

    metric = family.metric
    make = core.CounterMetricFamily if metric.kind == "counter" else core.GaugeMetricFamily
    made: core.CounterMetricFamily | core.GaugeMetricFamily = make(
        metric.name, metric.help, labels=_names(family, extra)
    )
    for labels, value in family.values.items():
        made.add_metric((*labels, *_values(extra)), value)
    return made


def _summary(family: Family, extra: Pairs) -> MetricFamily:
    from prometheus_client.core import SummaryMetricFamily

    metric = family.metric
    made = SummaryMetricFamily(metric.name, metric.help, labels=_names(family, extra))
    for labels, state in family.distributions.items():
        made.add_metric((*labels, *_values(extra)), sum(state.counts), state.total)
    return made


def _histogram(family: Family, extra: Pairs) -> MetricFamily:
    from prometheus_client.core import HistogramMetricFamily

    metric = family.metric
    made = HistogramMetricFamily(metric.name, metric.help, labels=_names(family, extra))
    for labels, state in family.distributions.items():
        bounds = _cumulative(metric.buckets, state)
        made.add_metric((*labels, *_values(extra)), bounds, state.total)
    return made


def _names(family: Family, extra: Pairs) -> tuple[str, ...]:
    return (*family.metric.labels, *(name for name, _ in extra))


def _values(extra: Pairs) -> tuple[str, ...]:
    return tuple(value for _, value in extra)


def _cumulative(bounds: tuple[float, ...], state: Distribution) -> list[tuple[str, float]]:
    """Return (upper bound, observations up to it), as Prometheus counts them."""
    names = [*(repr(bound) for bound in bounds), "+Inf"]
    return list(zip(names, map(float, accumulate(state.counts)), strict=True))
