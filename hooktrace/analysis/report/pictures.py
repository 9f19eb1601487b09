"""Pictures of one model: overlap over time, stages and error of each bucket, lag of each rank.

ModelFacts, StepArrays --> Svg as text, 1000 units wide; "" where there is nothing to draw
"""

from __future__ import annotations

from math import ceil, floor, isnan, log10

import numpy as np

from ...records.units import bandwidth, mb, milliseconds, ms
from .facts import BucketFacts, ModelFacts
from .step_arrays import Floats, StepArrays
from .svg import Scale, Svg
from .tables import stages_of

WIDTH = 1000.0
_MOST_COLUMNS = 300
_MOST_BARS = 120


def overlap_picture(arrays: StepArrays) -> str:
    """Return overlap and exposed time of each step: median of the ranks, least and most."""
    overlap = _columns(100 * arrays.overlap)
    exposed = _columns(arrays.exposed / 1e6)
    if np.isnan(overlap[1]).all():
        return ""
    svg = Svg(WIDTH, 330, "overlap and exposed time by step")
    left, right = 56.0, WIDTH - 12
    first, last = float(arrays.steps[0]), float(arrays.steps[-1])
    across = Scale(0, max(1, overlap.shape[1] - 1), left, right)
    for values, top, bottom, high, unit, name in (
        (overlap, 22.0, 150.0, 100.0, " %", "overlap: share of communication behind backward"),
        (exposed, 192.0, 300.0, _ceiling(exposed), " ms", "exposed"),
    ):
        up = Scale(0, high, bottom, top)
        svg.y_axis(up, left, right, unit)
        svg.text(left, top - 8, name, "label")
        _band(svg, values, across, up)
    steps = Scale(first, last, left, right)
    marks = np.unique(np.linspace(first, last, 6).astype(int)).tolist()
    for value in marks:
        anchor = "start" if value == marks[0] else "end" if value == marks[-1] else "middle"
        svg.text(steps(value), 318, f"step {value:,}", "tick", anchor)
    return str(svg)


def _columns(values: Floats) -> Floats:
    """Return (3, columns): least, median and most of the ranks, steps put together if many."""
    count = values.shape[1]
    columns = min(count, _MOST_COLUMNS)
    edges = np.linspace(0, count, columns + 1).astype(int)
    found = np.full((3, columns), np.nan)
    for i in range(columns):
        part = values[:, edges[i] : edges[i + 1]]
        part = part[~np.isnan(part)]
        if part.size:
            found[:, i] = part.min(), np.median(part), part.max()
    return found


def _ceiling(values: Floats) -> float:
    """Return the top of an axis: all of the medians, and of the most what is not far off."""
    known = values[2][~np.isnan(values[2])]
    middle = values[1][~np.isnan(values[1])]
    return float(max(middle.max(), min(known.max(), 2 * np.quantile(known, 0.95)), 1e-3))


def _band(svg: Svg, values: Floats, across: Scale, up: Scale) -> None:
    places = [i for i in range(values.shape[1]) if not isnan(values[1, i])]

    def y(row: int, i: int) -> float:
        return up(min(max(values[row, i], up.low), up.high))

    upper = [(across(i), y(2, i)) for i in places]
    lower = [(across(i), y(0, i)) for i in reversed(places)]
    svg.curve(upper + lower, "band")
    svg.curve([(across(i), y(1, i)) for i in places], "line")


def stages_picture(model: ModelFacts) -> str:
    """Return a bar of stages for each bucket, and beside it its bytes and bandwidth."""
    buckets = model.buckets[:_MOST_BARS]
    names = stages_of(model)
    if not names:
        return ""
    longest = max(sum(b.stages.values()) for b in buckets) / 1e6
    height = 20.0 if len(buckets) <= 40 else 12.0
    svg = Svg(WIDTH, 14 + height * len(buckets) + 26, "stages of each bucket")
    left, right = 76.0, WIDTH - 250
    across = Scale(0, longest, left, right)
    svg.x_axis(across, 10 + height * len(buckets), 8, "ms")
    for i, bucket in enumerate(buckets):
        top = 10 + i * height
        svg.text(left - 8, top + height * 0.7, _label(bucket), "tick", "end")
        x = left
        for name in names:
            for cls, ns, what in _parts(bucket, name):
                width = across(ns / 1e6) - left
                svg.rect(x, top + 2, width, height - 4, cls, tip=f"{what}: {ms(ns)}")
                x += width
        sent = "" if bucket.wire_bytes is None else f" → {mb(bucket.wire_bytes)}"
        rate = bucket.busbw_bytes_per_second
        text = f"{mb(bucket.gradient_bytes)}{sent}"
        text += "" if rate is None else f", {bandwidth(rate)}"
        svg.text(right + 12, top + height * 0.7, text, "tick")
    return str(svg)


def _label(bucket: BucketFacts) -> str:
    return f"{'last, ' if bucket.is_last else ''}{bucket.bucket}"


def _parts(bucket: BucketFacts, name: str) -> list[tuple[str, float, str]]:
    """Return class, ns and name of a stage's parts; a wire stage has the wait in front."""
    ns = bucket.stages.get(name, 0.0)
    if name != "wire" or bucket.wait_ns is None:
        return [(name, ns, name)]
    return [
        ("wait", bucket.wait_ns, "wire, until the last rank is there"),
        ("wire", ns - bucket.wait_ns, "wire"),
    ]


def error_picture(model: ModelFacts) -> str:
    """Return the relative L2 error of each bucket, median to largest, on a logarithmic scale."""
    found = [(b, b.error) for b in model.buckets if b.error is not None][:_MOST_BARS]
    positive = [e.p50 for _, e in found if e.p50 > 0] + [e.most for _, e in found if e.most > 0]
    finite = [value for value in positive if np.isfinite(value)]
    if not finite:
        return ""
    low, high = floor(log10(min(finite))), ceil(log10(max(finite)))
    svg = Svg(WIDTH, 18.0 * len(found) + 40, "error of each bucket")
    left, right = 76.0, WIDTH - 250
    across = Scale(low, max(high, low + 1), left, right)
    bottom = 12 + 18.0 * len(found)
    for power in range(low, max(high, low + 1) + 1):
        svg.line(across(power), 8, across(power), bottom, "grid")
        svg.text(across(power), bottom + 14, f"{10.0**power:g}", "tick", "middle")

    def x(value: float) -> float:
        return across(min(max(log10(value), low), across.high)) if value > 0 else left

    for i, (bucket, error) in enumerate(found):
        y = 10 + 18.0 * i + 9
        svg.text(left - 8, y + 4, _label(bucket), "tick", "end")
        svg.line(x(error.p50), y, x(error.most), y, "whisker")
        tip = f"median {error.p50:.3g}, largest {error.most:.3g} of {error.count} probes"
        svg.dot(x(error.p50), y, 4.5, "point", tip=tip)
        text = f"{error.p50:.2g}" + (f", worst {error.worst}" if error.worst else "")
        svg.text(right + 12, y + 4, text, "tick")
    return str(svg)


def lag_picture(arrays: StepArrays, lags: Floats) -> str:
    """Return a map, rank by bucket, of ``lags``, the median ns after the first rank."""
    lags = lags / 1e6
    if np.isnan(lags).all():
        return ""
    ranks, buckets = lags.shape
    most = float(np.nanmax(lags))
    cell_height = 18.0 if ranks <= 24 else max(5.0, 640.0 / ranks)
    left, top = 76.0, 24.0
    cell_width = min(64.0, (WIDTH - left - 12) / buckets)
    svg = Svg(WIDTH, top + ranks * cell_height + 44, "lag of each rank at each bucket")
    shown = max(1, ceil(28 / cell_width))
    for b in range(0, buckets, shown):
        x = left + (b + 0.5) * cell_width
        svg.text(x, top - 8, str(int(arrays.buckets[b])), "tick", "middle")
    every = max(1, ceil(13 / cell_height))
    for i, rank in enumerate(arrays.ranks):
        y = top + i * cell_height
        if i % every == 0:
            svg.text(left - 8, y + cell_height / 2 + 4, f"rank {rank}", "tick", "end")
        for b in range(buckets):
            value = float(lags[i, b])
            x, width = left + b * cell_width, cell_width - 1
            where = f"rank {rank}, bucket {int(arrays.buckets[b])}"
            if isnan(value):
                svg.rect(x, y, width, cell_height - 1, "unknown", tip=f"{where}: unknown")
                continue
            strength = 0.03 + 0.97 * (value / most if most > 0 else 0.0)
            tip = f"{where}: {milliseconds(value * 1e6)} ms after the first rank"
            svg.rect(x, y, width, cell_height - 1, "lag", tip=tip, opacity=strength)
            if cell_width >= 40 and cell_height >= 18:
                cls = "on-lag" if strength > 0.55 else "tick"
                svg.text(x + width / 2, y + 13, milliseconds(value * 1e6), cls, "middle")
    bottom = top + ranks * cell_height + 12
    for i in range(40):
        svg.rect(left + 4.0 * i, bottom, 4.2, 10, "lag", opacity=0.03 + 0.97 * i / 39)
    svg.text(left, bottom + 24, "0", "tick")
    svg.text(left + 160, bottom + 24, ms(most * 1e6), "tick", "end")
    return str(svg)
