"""Pictures of a comparison: quantities and parts with their intervals, and the buckets.

Comparison --> Svg, or None where there is nothing to draw
"""

from __future__ import annotations

from collections.abc import Sequence

from ..document.svg import WIDTH, Scale, Svg
from .comparison import Comparison, Difference
from .sentence import share, signed, signed_ms, within

_LEFT, _RIGHT = 290.0, WIDTH - 190
_ROW = 24.0
_MOST_BARS = 60
_LONGEST_TITLE = 42
"""Letters of a unit's collective, of which the last ones tell most."""
_MOST_SHARE = 3.0
"""Of A: what is beyond is cut off, so that one tiny stage does not flatten all others."""


def shares_picture(one: Comparison) -> Svg | None:
    """Return the difference of each quantity in percent of A, with its interval."""
    rows = [
        (q.title, _percent(q.difference), q.difference, share(q.difference, q.unit))
        for q in one.quantities
        if q.difference.share is not None and q.difference.share_low is not None
        and q.unit != "share"
    ]  # fmt: skip
    return _dots([row for row in rows if row[1]], "%", "differences in percent of A")


def parts_picture(one: Comparison) -> Svg | None:
    """Return what each part adds to the difference of the step time, ms, with its interval."""
    rows = [
        (p.title, _ms(p.difference), p.difference, signed_ms(p.difference.difference))
        for p in one.parts
    ]
    if one.step is not None:
        step = one.step
        rows.append(("step time", _ms(step), step, signed_ms(step.difference)))
    return _dots([row for row in rows if row[1]], "ms", "parts of the step time's difference")


_Ends = tuple[float, float, float]


def _percent(found: Difference) -> _Ends:
    values = (found.share_low or 0.0, found.share or 0.0, found.share_high or 0.0)
    low, middle, high = (100 * min(max(x, -_MOST_SHARE), _MOST_SHARE) for x in values)
    return low, middle, high


def _ms(found: Difference) -> _Ends | None:
    if found.low is None or found.high is None or found.difference is None:
        return None
    return found.low / 1e6, found.difference / 1e6, found.high / 1e6


def _dots(
    rows: Sequence[tuple[str, _Ends | None, Difference, str]], unit: str, title: str
) -> Svg | None:
    known = [(name, ends, found, text) for name, ends, found, text in rows if ends is not None]
    if not known:
        return None
    bottom = 12 + _ROW * len(known)
    low = min(0.0, *(ends[0] for _, ends, _, _ in known))
    high = max(0.0, *(ends[2] for _, ends, _, _ in known))
    if low == high:
        return None
    svg = Svg(bottom + 26, title)
    room = 0.04 * (high - low)
    across = Scale(low - room, high + room, _LEFT, _RIGHT)
    svg.x_axis(across, bottom, 8, unit)
    svg.line(across(0), 4, across(0), bottom, "zero")
    for i, (name, ends, found, text) in enumerate(known):
        y = 12 + _ROW * (i + 0.5)
        shown = "" if found.differs else " unsure"
        svg.text(_LEFT - 10, y + 4, name, "label", anchor="end")
        svg.line(across(ends[0]), y, across(ends[2]), y, f"whisker{shown}")
        tip = f"{name}: {text}"
        tip += f", 95 % {within(found, 'ns')} ms" if unit == "ms" else ""
        svg.add("circle", f"point{shown}", cx=across(ends[1]), cy=y, r=4.5, tip=tip)
        svg.text(_RIGHT + 14, y + 4, text, "label" if found.differs else "tick")
    return svg


def bucket_picture(one: Comparison) -> Svg | None:
    """Return two bars a bucket, what it adds to the exposed time in A and in B, ms."""
    pairs = one.buckets[:_MOST_BARS]
    most = max((max(p.exposed.a or 0.0, p.exposed.b or 0.0) for p in pairs), default=0.0)
    if not most:
        return None
    row = 30.0 if len(pairs) <= 20 else 18.0
    bottom = 10 + row * len(pairs)
    noun = "unit" if one.is_of_units else "bucket"
    svg = Svg(bottom + 26, f"what each {noun} adds to the exposed time")
    across = Scale(0, most / 1e6, _LEFT, _RIGHT)
    svg.x_axis(across, bottom, 8, "ms")
    for i, pair in enumerate(pairs):
        top = 10 + i * row
        name, label = pair.title, pair.title[-_LONGEST_TITLE:]
        if pair.unit is None:
            name = f"bucket {pair.title}"
            label = _named(name, pair.largest)
        svg.text(_LEFT - 10, top + row / 2 + 4, label, "label", anchor="end")
        for turn, (cls, ns) in enumerate((("side-a", pair.exposed.a), ("side-b", pair.exposed.b))):
            y, height = top + 2 + turn * (row - 4) / 2, (row - 4) / 2 - 1
            width = across((ns or 0.0) / 1e6) - _LEFT
            tip = f"{name} in {(one.a.name, one.b.name)[turn]}: {signed(ns, 'ns')[1:]} ms"
            svg.add("rect", cls, x=_LEFT, y=y, width=width, height=height, tip=tip)
        text = signed_ms(pair.exposed.difference)
        cls = "label" if pair.exposed.differs else "tick"
        svg.text(_RIGHT + 14, top + row / 2 + 4, text, cls)
    return svg


def _named(name: str, largest: str | None) -> str:
    if largest is None:
        return name
    short = largest if len(largest) <= 26 else f"…{largest[-25:]}"
    return f"{name}, {short}"
