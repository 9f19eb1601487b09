"""The picture of a comparison: what accounts for the step time, each part with its interval.

Comparison --> Svg, or None where there is nothing to draw
"""

from __future__ import annotations

from ..document.svg import WIDTH, Scale, Svg
from .comparison import Comparison
from .sentence import signed_ms

_LEFT, _RIGHT = 290.0, WIDTH - 190
_ROW = 24.0


def parts_picture(one: Comparison) -> Svg | None:
    """Return what each part adds to the difference of the step time, ms, with its interval."""
    rows = [(part.title, part.difference) for part in one.parts]
    rows += [] if one.step is None else [("step time", one.step)]
    known = [
        (name, of, [of.low / 1e6, of.apart / 1e6, of.high / 1e6])
        for name, of in rows
        if of.low is not None and of.high is not None
    ]
    low = min((0.0, *(ends[0] for *_, ends in known)))
    high = max((0.0, *(ends[2] for *_, ends in known)))
    if low == high:
        return None
    bottom = 12 + _ROW * len(known)
    svg = Svg(bottom + 26, "parts of the step time's difference")
    room = 0.04 * (high - low)
    across = Scale(low - room, high + room, _LEFT, _RIGHT)
    svg.x_axis(across, bottom, 8, "ms")
    svg.line(across(0), 4, across(0), bottom, "zero")
    for i, (name, of, ends) in enumerate(known):
        y, shown = 12 + _ROW * (i + 0.5), "" if of.differs else " unsure"
        text = signed_ms(of.difference)
        svg.text(_LEFT - 10, y + 4, name, "label", anchor="end")
        svg.line(across(ends[0]), y, across(ends[2]), y, f"whisker{shown}")
        svg.add("circle", f"point{shown}", cx=across(ends[1]), cy=y, r=4.5, tip=f"{name}: {text}")
        svg.text(_RIGHT + 14, y + 4, text, "label" if of.differs else "tick")
    return svg
