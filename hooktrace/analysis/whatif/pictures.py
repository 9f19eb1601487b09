"""The picture of a sweep: two logarithmic axes, a line a hook, crossings, and where the run is."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, floor, log10

from ..report.svg import WIDTH, Scale, Svg, curve
from .sweep import Crossing, Sweep, chosen, crossings, fastest
from .words import bit_rate, latency, step_ms

_LEFT, _RIGHT, _TOP, _BOTTOM = 64.0, WIDTH - 20, 34.0, 380.0


def line_class(place: int) -> str:
    """Return the class of a line's colour, by its place among those drawn."""
    return f"hook-{place}"


def legend(sweep: Sweep) -> list[tuple[str, str]]:
    """Return class and name of each line."""
    names = [sweep.hooks[row] for row in chosen(sweep)]
    return [
        (line_class(i), f"{name}, as it is" if name == sweep.today else name)
        for i, name in enumerate(names)
    ]


def sweep_picture(sweep: Sweep) -> Svg:
    """Return predicted step times over bandwidths."""
    rows = chosen(sweep)
    svg = Svg(_BOTTOM + 34, "predicted step time over bandwidth")
    low, high = sweep.step_ms[list(rows)].min(), sweep.step_ms[list(rows)].max()
    first, last = sweep.bandwidths[[0, -1]].tolist()
    across = Scale(log10(first), log10(last), _LEFT, _RIGHT)
    up = Scale(log10(low) - 0.05, log10(max(high, 1.3 * low)) + 0.05, _BOTTOM, _TOP)
    _axes(svg, across, up)
    for i, row in reversed(list(enumerate(rows))):
        points = zip(sweep.bandwidths.tolist(), sweep.step_ms[row].tolist(), strict=True)
        svg.path(
            curve([(across(log10(x)), up(log10(y))) for x, y in points]), f"sweep {line_class(i)}"
        )
    for crossing in crossings(sweep):
        _crossing(svg, crossing, across, up)
    if first <= sweep.bandwidth <= last:
        _here(svg, sweep, across, up)
    return svg


def _axes(svg: Svg, across: Scale, up: Scale) -> None:
    for value in (1e8, 1e9, 1e10, 1e11, 4e11):
        x = across(log10(value / 8))
        svg.line(x, _TOP, x, _BOTTOM, "grid")
        anchor = "end" if value == 4e11 else "middle"
        svg.text(x, _BOTTOM + 16, bit_rate(value / 8), anchor=anchor)
    marks = list(_marks(10**up.low, 10**up.high))
    for value in marks:
        svg.line(_LEFT, up(log10(value)), _RIGHT, up(log10(value)), "grid")
        svg.text(_LEFT - 6, up(log10(value)) + 4, f"{value:,g}", anchor="end")
    svg.text(_LEFT, 14, "predicted step, ms", "label")


def _marks(low: float, high: float) -> Iterator[float]:
    """Yield 1, 2 and 5 times powers of ten between two values; more where these are too few."""
    powers = range(floor(log10(low)), ceil(log10(high)) + 1)
    for factors in ((1.0, 2.0, 5.0), (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)):
        found = [f * 10.0**p for p in powers for f in factors if low <= f * 10.0**p <= high]
        if len(found) >= 3:
            break
    yield from found


def _crossing(svg: Svg, crossing: Crossing, across: Scale, up: Scale) -> None:
    x, y = across(log10(crossing.bandwidth)), up(log10(crossing.step_ms))
    tip = f"{bit_rate(crossing.bandwidth)}: {crossing.slower} below, {crossing.faster} above"
    svg.add("circle", "crossing", cx=x, cy=y, r=5, tip=tip)


def setting(sweep: Sweep) -> str:
    """Return what is the same in all predictions."""
    ranks = "1 rank" if sweep.ranks == 1 else f"{sweep.ranks:,} ranks"
    return f"{ranks}, {latency(sweep.latency_ns)} a message"


def crossing_lines(sweep: Sweep) -> list[str]:
    """Return what the marks say, for those who have no pointer: the fastest, from slow to fast."""
    found = crossings(sweep)
    if not found:
        return [f"{sweep.hooks[fastest(sweep)[0]]} on all of them"]
    up_to = [f"{one.slower} up to {bit_rate(one.bandwidth)}" for one in found]
    return [*up_to, f"{found[-1].faster} beyond"]


def _here(svg: Svg, sweep: Sweep, across: Scale, up: Scale) -> None:
    x = across(log10(sweep.bandwidth))
    svg.line(x, _TOP - 8, x, _BOTTOM, "here")
    anchor, x_text = ("end", x - 6) if x > (_LEFT + _RIGHT) / 2 else ("start", x + 6)
    where = "the network that was named" if sweep.is_named else "this run's network"
    said = f"{where}, {bit_rate(sweep.bandwidth)}"
    svg.text(x_text, _TOP - 2, said, "label", anchor=anchor)
    tip = f"{sweep.today} at {bit_rate(sweep.bandwidth)}: {step_ms(sweep.here_ms)} ms, predicted"
    svg.add("circle", "here-dot", cx=x, cy=up(log10(sweep.here_ms)), r=5.5, tip=tip)
