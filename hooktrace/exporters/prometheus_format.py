"""Totals in prometheus_client's form of them.

families of values --metric_families--> prometheus_client's, each with the labels of the target
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from ..records.metrics import BUCKET_DURATION
from .aggregates import Distribution, Family
from .observations import Labels

if TYPE_CHECKING:
    from prometheus_client.core import Metric as MetricFamily


def metric_families(
    families: Iterable[Family], target: dict[str, str], *, bucket_histograms: bool
) -> Iterator[MetricFamily]:
    """Yield all series; ``target``: labels that stand on each of them.

    Without ``bucket_histograms`` durations of buckets are shown by their sum and count alone.
    """
    from prometheus_client import core

    makers: dict[str, Any] = {
        "counter": core.CounterMetricFamily,
        "gauge": core.GaugeMetricFamily,
        "histogram": core.HistogramMetricFamily,
        "info": core.InfoMetricFamily,
        "summary": core.SummaryMetricFamily,
    }
    for family in families:
        metric = family.metric
        is_summary = metric is BUCKET_DURATION and not bucket_histograms
        kind = "summary" if is_summary else metric.kind
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
