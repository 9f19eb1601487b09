"""Numbers as people read them: the one place where ns, bytes and shares become text.

Functions of their input; ``None`` and NaN are what nobody knows.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import floor, isnan, log10


def milliseconds(ns: float | None) -> str:
    """Return ns in ms with three digits or so: ``0.42``, ``12.3``, ``1,240``; ``-`` if unknown."""
    if ns is None or isnan(ns):
        return "-"
    value = ns / 1e6
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def ms(ns: float | None) -> str:
    """Return ns in ms with the unit; ``unknown`` if it is."""
    return "unknown" if ns is None or isnan(ns) else f"{milliseconds(ns)} ms"


def exact_ms(ns: int) -> str:
    """Return ns in ms to the microsecond, with the unit."""
    return f"{ns / 1e6:,.3f} ms"


def time_text(ns: float) -> str:
    """Return ns with three digits, in the largest unit of which there is one, as the tab has them.

    >>> time_text(4_200), time_text(601_000), time_text(1_240_000_000)
    ('4.2 µs', '601 µs', '1.24 s')
    """
    for size, unit in ((6e10, "min"), (1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if abs(ns) >= size:
            return f"{float(f'{ns / size:.3g}'):g} {unit}"
    return f"{ns:.0f} ns"


def megabytes(count: float | None) -> str:
    """Return bytes in MB: two digits after the point, or as many as a small number needs."""
    if count is None or isnan(count):
        return "-"
    value = count / 1e6
    digits = 2 if value == 0 or value >= 0.1 else 1 - floor(log10(value))
    return f"{value:.{digits}f}"


def mb(count: float | None) -> str:
    """Return bytes in MB with the unit; ``unknown`` if it is."""
    return "unknown" if count is None else f"{megabytes(count)} MB"


def size(count: int) -> str:
    """Return bytes in the largest unit of which there is one: ``2.1 MB``."""
    for limit, unit in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if count >= limit:
            return f"{count / limit:.3g} {unit}"
    return f"{count} B"


def percent(share: float | None) -> str:
    """Return a share in percent, one digit after the point below 10; ``-`` if unknown."""
    if share is None or isnan(share):
        return "-"
    value = share * 100
    return f"{value:.0f} %" if abs(value) >= 10 or value == 0 else f"{value:.1f} %"


def bandwidth(bytes_per_second: float | None) -> str:
    """Return a bandwidth in GB/s, or in MB/s below 1; ``-`` if unknown."""
    if bytes_per_second is None or isnan(bytes_per_second):
        return "-"
    if bytes_per_second >= 1e9:
        return f"{bytes_per_second / 1e9:.2f} GB/s"
    return f"{mb_per_second(bytes_per_second)} MB/s"


def mb_per_second(bytes_per_second: float | None) -> str:
    """Return a bandwidth in MB/s, two digits of a small one, which is not 0; ``-`` if unknown."""
    if bytes_per_second is None or isnan(bytes_per_second):
        return "-"
    value = bytes_per_second / 1e6
    return f"{value:,.0f}" if value >= 10 or not value else f"{value:.2g}"


def listed(values: Iterable[int], *, most: int = 8) -> str:
    """Return whole numbers for a sentence: ``0-3, 7 and 12 more``."""
    runs = _runs(set(values))
    shown, left = runs[:most], sum(len(run) for run in runs[most:])
    parts = [str(r[0]) if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in shown]
    return ", ".join(parts) + (f" and {left} more" if left else "")


def named_ranks(numbers: Iterable[int]) -> str:
    """Return a list of ranks, runs of them shortened.

    >>> named_ranks([2]), named_ranks([0, 1, 3]), named_ranks(range(63))
    ('rank 2', 'ranks 0, 1, 3', 'ranks 0 to 62')
    """
    parts = [part for run in _runs(numbers) for part in _parts(run)]
    said = [text for text, _ in parts]
    if len(parts) > 12:
        said = [*said[:8], f"and {sum(count for _, count in parts[8:])} more"]
    return ("rank " if [count for _, count in parts] == [1] else "ranks ") + ", ".join(said)


def _runs(numbers: Iterable[int]) -> list[list[int]]:
    """Return whole numbers in order, those that follow each other together."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return runs


def _parts(run: list[int]) -> list[tuple[str, int]]:
    """Return how a run is said, and of how many numbers each part is."""
    if len(run) > 2:
        return [(f"{run[0]} to {run[-1]}", len(run))]
    return [(str(number), 1) for number in run]


def counted(count: int, noun: str) -> str:
    """Return ``1 rank`` or ``1,024 ranks``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def ordinal(number: int) -> str:
    """Return a place in a row: "1st", "12th".

    >>> ordinal(1), ordinal(12), ordinal(23)
    ('1st', '12th', '23rd')
    """
    teens = number % 100 in {11, 12, 13}
    return f"{number}{'th' if teens else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"
