"""Totals in prometheus_client's form of them, as it asks at each scrape.

families of values --TotalsCollector--> metric families, each with the labels of the target
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from ..records.metrics import BUCKET_DURATION, METRICS
from .aggregates import Distribution, Family
from .observations import Labels

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
        from prometheus_client import core

        makers: dict[str, Any] = {
            "counter": core.CounterMetricFamily,
            "gauge": core.GaugeMetricFamily,
            "histogram": core.HistogramMetricFamily,
            "info": core.InfoMetricFamily,
            "summary": core.SummaryMetricFamily,
        }
        target = dict(totals.labels)
        for family in totals.families:
            metric = family.metric
            kind = "summary" if metric in self._sums_only else metric.kind
            own = () if kind == "info" else metric.labels
            made = makers[kind](metric.name, metric.help, labels=[*own, *target])
            for labels, shown in _series(family, kind):
                made.add_metric([*labels, *target.values()], *shown)
            yield made


def _series(family: Family, kind: str) -> Iterator[tuple[Labels, tuple[object, ...]]]:
    """Yield each series' labels, and what the ``add_metric`` of its kind takes after them."""
    metric = family.metric
    for labels, value in family.values.items():
        if kind == "info":
            yield (), (dict(zip(metric.labels, labels, strict=True)),)
        else:
            yield labels, (value,)
    for labels, state in family.distributions.items():
        if kind == "summary":
            yield labels, (sum(state.counts), state.total)
        else:
            yield labels, (_cumulative(metric.buckets, state), state.total)


def _cumulative(bounds: tuple[float, ...], state: Distribution) -> list[tuple[str, float]]:
    """Return (upper bound, observations up to it), as Prometheus counts them."""
    names = [*(repr(bound) for bound in bounds), "+Inf"]
    return list(zip(names, map(float, accumulate(state.counts)), strict=True))
