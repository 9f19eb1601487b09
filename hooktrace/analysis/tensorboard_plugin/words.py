"""Times and counts as the page writes them, in its lists and in what it draws alike (dom.js)."""

from __future__ import annotations

_UNITS = ((60_000_000_000, "min"), (1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"))


def time_text(ns: int) -> str:
    """Return ns with three significant digits, in the largest unit of which there is one."""
    for size, unit in _UNITS:
        if abs(ns) >= size:
            return f"{float(f'{ns / size:.3g}'):g} {unit}"
    return f"{ns} ns"


def counted(count: int, noun: str) -> str:
    """Return ``1 rank`` or ``1,024 ranks``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
