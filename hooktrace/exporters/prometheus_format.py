"""Totals in prometheus_client's form of them.

families of values --metric_families--> prometheus_client's, each with the labels of the target
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from ..records.metrics import BUCKET_DURATION
from .aggregates import Family

if TYPE_CHECKING:
    from prometheus_client.core import Metric as MetricFamily


def metric_families(
    families: Iterable[Family], target: dict[str, str], *, bucket_histograms: bool
) -> Iterator[MetricFamily]:
    """Yield all series; ``target``: labels that stand on each of them.

    Without ``bucket_histograms`` durations of buckets are shown by their sum and count alone.
    """
    from prometheus_client import core

    for family in families:
        metric = family.metric
        is_summary = metric is BUCKET_DURATION and not bucket_histograms
        kind = "summary" if is_summary else metric.kind
        own = () if kind == "info" else metric.labels
        make: Any = getattr(core, f"{kind.capitalize()}MetricFamily")
        made = make(metric.name, metric.help, labels=[*own, *target])
        for labels, total in family.series.items():
            shown: tuple[object, ...] = (total,)
            if kind == "info":
                shown = (dict(zip(metric.labels, labels, strict=True)),)
            elif kind == "summary":
                shown = sum(total.counts), total.total
            elif kind == "histogram":
                # Observations up to each bound.
                bounds = [*map(repr, metric.buckets), "+Inf"]
                counts = map(float, accumulate(total.counts))
                shown = list(zip(bounds, counts, strict=True)), total.total
            made.add_metric([*labels[: len(own)], *target.values()], *shown)
        yield made
