"""What a dashboard is made of, and PromQL of the table's metrics.

    Metric --rate, mean, quantile, last--> Query --> Panel --> Dashboard

Every name of a metric comes from ``hooktrace/records/metrics.py``.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from hooktrace.records.metrics import Metric

__all__ = [
    "INTERPOLATED", "OF_JOB", "OF_MODEL", "UNTIMED", "Dashboard", "Panel", "Query", "last", "mean",
    "quantile", "rate",
]  # fmt: skip

OF_MODEL = 'job=~"$job", model=~"$model"'
OF_JOB = 'job=~"$job"'

UNTIMED = "Warm-up, probed, incomplete and shadow steps are not in it; with debug=True no step is."
INTERPOLATED = "A percentile is interpolated between bounds that are a factor of 2 to 2.5 apart."
"""What many panels say."""


class Query(NamedTuple):
    """PromQL and the legend of its series; ``none_while``: when it rightly returns nothing."""

    expr: str
    legend: str
    none_while: str = ""


class Panel(NamedTuple):
    """A title, what it says and what would make that false, and what it draws."""

    title: str
    description: str
    unit: str
    queries: tuple[Query, ...]
    kind: Literal["lines", "stacked", "table"] = "lines"
    width: int = 12


class Dashboard(NamedTuple):
    """A file of its own, ``<uid>.json``."""

    uid: str
    title: str
    description: str
    panels: tuple[Panel, ...]


def rate(metric: Metric, suffix: str = "", window: str = "$__rate_interval", more: str = "") -> str:
    """Return a counter's rate by series, of the chosen jobs and models; ``more``: labels."""
    return f"rate({metric.prometheus_name}{suffix}{{{OF_MODEL}{more}}}[{window}])"


def mean(metric: Metric, by: str, window: str = "$__rate_interval") -> str:
    """Return the mean of a histogram's samples over a window."""
    total, count = (rate(metric, suffix, window) for suffix in ("_sum", "_count"))
    return f"sum by ({by}) ({total}) / sum by ({by}) ({count})"


def quantile(share: float, metric: Metric, by: str, window: str = "$__rate_interval") -> str:
    """Return a percentile of a histogram's samples over a window."""
    return f"histogram_quantile({share}, sum by (le, {by}) ({rate(metric, '_bucket', window)}))"


def last(function: str, metric: Metric, by: str, of: str = OF_MODEL) -> str:
    """Return the values of now, put together by some labels."""
    return f"{function} by ({by}) ({metric.prometheus_name}{{{of}}})"
