"""Numbers of a comparison as people read them, for the terminal and the page."""

from __future__ import annotations

from ...records.units import megabytes, milliseconds, percent
from .comparison import Difference, Unit

MINUS = "\N{MINUS SIGN}"

_LEAST_SHARE = 0.0005
"""Below, one digit after the point says nothing but 0."""


def value(of: float | None, unit: Unit) -> str:
    """Return a number without its unit: ms, MB, a share in percent."""
    if of is None:
        return "unknown"
    if unit == "ns":
        return milliseconds(of)
    if unit == "bytes":
        return megabytes(of)
    return percent(of) if unit == "share" else f"{of:#.4g}" if unit == "loss" else f"{of:.3g}"


def signed(of: float | None, unit: Unit) -> str:
    """Return a difference with its sign."""
    if of is None:
        return "-"
    return f"{sign(of)}{value(abs(of), 'error' if unit == 'loss' else unit)}"


def sign(of: float) -> str:
    """Return the sign of a difference; none of 0."""
    return MINUS if of < 0 else "+" if of > 0 else ""


def signed_ms(ns: float | None) -> str:
    """Return a difference in ms with its sign and unit."""
    return "unknown" if ns is None else f"{signed(ns, 'ns')} ms"


def within(found: Difference, unit: Unit) -> str:
    """Return the interval of a difference; ``-`` where none is known."""
    if found.low is None or found.high is None:
        return "-"
    if found.low == found.high:
        return "exact"
    return f"{signed(found.low, unit)} to {signed(found.high, unit)}"


def share(found: Difference, unit: Unit) -> str:
    """Return the difference as a share of the first side."""
    if found.share is None or unit == "share" or found.verdict == "unknown":
        return "-"
    if 0 < abs(found.share) < _LEAST_SHARE:
        return "< 0.1 %"
    return f"{sign(found.share)}{percent(abs(found.share))}"


def verdict(found: Difference) -> str:
    """Return the verdict in words."""
    words = {"differs": "differs", "same": "the same", "not shown": "not shown to differ"}
    return words.get(found.verdict, "unknown")
