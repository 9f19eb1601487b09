"""Pictures of a comparison: quantities, parts and buckets, each with its interval.

Comparison --> Svg, or None where there is nothing to draw
"""

from __future__ import annotations

from collections.abc import Iterable

from ..document.svg import WIDTH, Scale, Svg
from .comparison import Comparison, Difference
from .sentence import share, signed_ms

_LEFT, _RIGHT = 290.0, WIDTH - 190
_ROW = 24.0
_MOST_ROWS = 60
_LONGEST = 42
"""Letters of a name, of which the last ones tell most."""
_MOST_SHARE = 3.0
"""Of A: what is beyond is cut off, so that one tiny stage does not flatten all others."""


def shares_picture(one: Comparison) -> Svg | None:
    """Return the difference of each quantity in percent of A, with its interval."""
    return _dots("%", "differences in percent of A", (
        (q.title, q.difference, share(q.difference, q.unit), [
            None if x is None else 100 * min(max(x, -_MOST_SHARE), _MOST_SHARE)
            for x in (q.difference.share_low, q.difference.share, q.difference.share_high)
        ])
        for q in one.quantities if q.unit != "share"
    ))  # fmt: skip


def parts_picture(one: Comparison) -> Svg | None:
    """Return what each part adds to the difference of the step time, ms, with its interval."""
    parts = [(part.title, part.difference) for part in one.parts]
    whole = [] if one.step is None else [("step time", one.step)]
    return _of_times("parts of the step time's difference", [*parts, *whole])


def bucket_picture(one: Comparison) -> Svg | None:
    """Return the difference of what each bucket adds to the exposed time, ms, with its interval."""
    return _of_times(
        f"what each {one.noun} adds to the exposed time",
        [
            (p.title if p.unit else " ".join(filter(None, ("bucket", p.title, p.largest))),
             p.exposed) for p in one.buckets[:_MOST_ROWS]
        ],
    )  # fmt: skip


def _of_times(title: str, rows: Iterable[tuple[str, Difference]]) -> Svg | None:
    return _dots("ms", title, (
        (name, of, signed_ms(of.difference), [
            None if x is None else x / 1e6 for x in (of.low, of.difference, of.high)])
        for name, of in rows
    ))  # fmt: skip


def _dots(
    unit: str, title: str, rows: Iterable[tuple[str, Difference, str, list[float | None]]]
) -> Svg | None:
    """Return a row each: a name, the ends of an interval with a dot between them, and a text."""
    known = [
        (name, found.differs, text, [x for x in ends if x is not None])
        for name, found, text, ends in rows
        if None not in ends
    ]
    low = min((0.0, *(ends[0] for *_, ends in known)))
    high = max((0.0, *(ends[2] for *_, ends in known)))
    if low == high:
        return None
    bottom = 12 + _ROW * len(known)
    svg = Svg(bottom + 26, title)
    room = 0.04 * (high - low)
    across = Scale(low - room, high + room, _LEFT, _RIGHT)
    svg.x_axis(across, bottom, 8, unit)
    svg.line(across(0), 4, across(0), bottom, "zero")
    for i, (name, differs, text, ends) in enumerate(known):
        y, shown = 12 + _ROW * (i + 0.5), "" if differs else " unsure"
        cut = name if len(name) <= _LONGEST else f"\N{HORIZONTAL ELLIPSIS}{name[-_LONGEST:]}"
        svg.text(_LEFT - 10, y + 4, cut, "label", anchor="end")
        svg.line(across(ends[0]), y, across(ends[2]), y, f"whisker{shown}")
        svg.add("circle", f"point{shown}", cx=across(ends[1]), cy=y, r=4.5, tip=f"{name}: {text}")
        svg.text(_RIGHT + 14, y + 4, text, "label" if differs else "tick")
    return svg
