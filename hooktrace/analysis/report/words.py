"""Numbers as words of a report: as many digits as they are good for."""

from __future__ import annotations

from math import isnan

from ...records.summary import megabytes

__all__ = ["gigabytes_per_second", "mb", "ms", "percent", "plain_ms"]


def plain_ms(ns: float | None) -> str:
    """Return ns in ms with three digits or so: ``0.42``, ``12.3``, ``1,240``; ``-`` if unknown."""
    if ns is None or isnan(ns):
        return "-"
    value = ns / 1e6
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def ms(ns: float | None) -> str:
    """Return ns in ms with the unit; ``unknown`` if it is."""
    return "unknown" if ns is None or isnan(ns) else f"{plain_ms(ns)} ms"


def mb(count: float | None) -> str:
    """Return bytes in MB with the unit."""
    return "unknown" if count is None else f"{megabytes(count)} MB"


def percent(share: float | None) -> str:
    """Return a share in percent; one digit after the point below 10."""
    if share is None or isnan(share):
        return "-"
    value = share * 100
    return f"{value:.0f} %" if abs(value) >= 10 or value == 0 else f"{value:.1f} %"


def gigabytes_per_second(rate: float | None) -> str:
    """Return a bandwidth in GB/s, or in MB/s below 1."""
    if rate is None or isnan(rate):
        return "-"
    return f"{rate / 1e9:.2f} GB/s" if rate >= 1e9 else f"{rate / 1e6:.0f} MB/s"
