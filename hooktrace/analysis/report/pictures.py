"""Pictures of one model: a step on all ranks, overlap over time, stages of each bucket, lags.

ModelFacts, StepArrays --> Svg, or None where there is nothing to draw
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, isnan

import numpy as np

from ...records.units import bandwidth, mb, milliseconds, ms
from ..document.svg import WIDTH, Scale, Svg, box, curve
from ..run import STAGE_NAMES, RankTrack
from ..run.dense import Floats, StepArrays
from .facts import BucketFacts, ModelFacts
from .tables import stages_of

_MOST_COLUMNS = 300
MOST_BARS = 120
MOST_CELLS = (64, 100)
"""Ranks and buckets of the map of lags."""
_LONGEST = 22
"""Letters of a parameter's name beside a bar, of which the last ones tell most."""
_LEFT, _RIGHT = 76.0, WIDTH - 250
"""Where bars begin, after their names, and end at most, with text beside them."""
_LEFT_OF_UNITS = 300.0
_LONGEST_TITLE = 44
"""Letters of a unit's collective beside a bar, the last of which are its number."""


def overlap_picture(arrays: StepArrays) -> Svg | None:
    """Return overlap and exposed time of each step: median of the ranks, least and most."""
    overlap, exposed = _columns(100 * arrays.overlap), _columns(arrays.exposed / 1e6)
    if np.isnan(overlap).all():
        return None
    svg = Svg(330, "overlap and exposed time by step")
    left, right = 56.0, WIDTH - 12
    beside = "computing" if arrays.is_sharded else "backward"
    across = Scale(0, max(1, overlap.shape[1] - 1), left, right)
    for values, top, bottom, high, unit, name in (
        (overlap, 22.0, 150.0, 100.0, " %", f"share of communication overlapped with {beside}"),
        (exposed, 192.0, 300.0, _ceiling(exposed), " ms", "exposed"),
    ):
        up = Scale(0, high, bottom, top)
        svg.y_axis(up, left, right, unit)
        svg.text(left, top - 8, name, "label")
        _band(svg, values, across, up)
    first, last = arrays.steps[[0, -1]].tolist()
    steps = Scale(first, last, left, right)
    for value in np.unique(np.linspace(first, last, 6).astype(int)).tolist():
        anchor = "start" if value == first else "end" if value == last else "middle"
        svg.text(steps(value), 318, f"step {value:,}", anchor=anchor)
    return svg


def _columns(values: Floats) -> Floats:
    """Return (3, columns): least, median and most of the ranks, steps put together if many."""
    parts = np.array_split(values, min(values.shape[1], _MOST_COLUMNS), axis=1)
    found = np.full((3, len(parts)), np.nan)
    for i, part in enumerate(parts):
        known = part[~np.isnan(part)]
        if known.size:
            found[:, i] = known.min(), np.median(known), known.max()
    return found


def _ceiling(values: Floats) -> float:
    """Return the top of an axis: all of the medians, and of the most what is not far off."""
    _, middle, most = values[:, ~np.isnan(values[1])]
    return float(max(middle.max(), min(most.max(), 2 * np.quantile(most, 0.95)), 1e-3))


def _band(svg: Svg, values: Floats, across: Scale, up: Scale) -> None:
    places = np.flatnonzero(~np.isnan(values[1])).tolist()
    least, middle, most = (
        [(across(i), up(min(max(row[i], up.low), up.high))) for i in places]
        for row in values.tolist()
    )
    svg.path(curve([*most, *reversed(least)]), "band")
    svg.path(curve(middle), "line")


def stages_picture(model: ModelFacts) -> Svg | None:
    """Return a bar of stages for each bucket, and beside it its bytes and bandwidth."""
    buckets = model.buckets[:MOST_BARS]
    names = stages_of(model)
    if not names:
        return None
    height = 20.0 if len(buckets) <= 40 else 12.0
    noun = "unit" if model.is_sharded else "bucket"
    svg = Svg(14 + height * len(buckets) + 26, f"stages of each {noun}")
    longest = max(sum(ns for name in names for _, ns, _ in _parts(b, name)) for b in buckets)
    begin = _begin(model)
    across = Scale(0, longest / 1e6, begin, _RIGHT)
    svg.x_axis(across, 10 + height * len(buckets), 8, "ms")
    for i, bucket in enumerate(buckets):
        top = 10 + i * height
        baseline = top + height * 0.7
        svg.text(begin - 8, baseline, _label(bucket), anchor="end")
        x = begin
        for cls, ns, what in (part for name in names for part in _parts(bucket, name)):
            width, tip = across(ns / 1e6) - begin, f"{what}: {ms(ns)}"
            if cls == "wait":
                svg.hatched([(x, top + 2, width)], height - 4)
            shown = "tip" if cls == "wait" else cls
            svg.add("rect", shown, x=x, y=top + 2, width=width, height=height - 4, tip=tip)
            x += width
        text = mb(bucket.gradient_bytes)
        text += "" if bucket.wire_bytes is None else f" → {mb(bucket.wire_bytes)}"
        rate = bucket.busbw_bytes_per_second
        text += "" if rate is None else f", {bandwidth(rate)}"
        svg.text(_RIGHT + 12, baseline, text)
    return svg


def _label(bucket: BucketFacts) -> str:
    if bucket.unit is not None:
        title = f"{bucket.title}, {bucket.bucket}"
        return title if len(title) <= _LONGEST_TITLE else f"\u2026{title[-_LONGEST_TITLE:]}"
    return f"{'last, ' if bucket.is_last else ''}{bucket.bucket}"


def _begin(model: ModelFacts) -> float:
    """Return where bars begin, after their names."""
    return _LEFT_OF_UNITS if model.is_sharded else _LEFT


def _parts(bucket: BucketFacts, name: str) -> list[tuple[str, float, str]]:
    """Return class, ns and name of a stage's parts; a wire stage has the wait in front."""
    if name != "wire" or bucket.wait_ns is None or bucket.transfer_ns is None:
        return [(name, bucket.stages.get(name, 0.0), name)]
    whom = f", most often rank {bucket.waits_for.rank}" if bucket.waits_for else ""
    return [
        ("wait", bucket.wait_ns, f"wire, until the last rank is there, in the mean{whom}"),
        ("wire", bucket.transfer_ns, "wire, transfer"),
    ]


def lag_picture(arrays: StepArrays) -> Svg | None:
    """Return a map, rank by bucket, of the median ns after the first rank.

    Of many ranks or buckets a cell stands for several next to each other, and shows the most.
    """
    arrays = arrays.sample
    if np.isnan(arrays.lags).all():
        return None
    lags = _most_of(_most_of(arrays.lags, MOST_CELLS[0]).T, MOST_CELLS[1]).T
    ranks, buckets = lags.shape
    rank_names = _names(arrays.ranks, ranks)
    bucket_names = _names(arrays.buckets.tolist(), buckets)
    most = float(np.nanmax(lags))
    height = 18.0 if ranks <= 24 else max(5.0, 640.0 / ranks)
    width = min(64.0, (WIDTH - _LEFT - 12) / buckets)
    left, top = _LEFT, 24.0
    noun = "unit" if arrays.is_sharded else "bucket"
    svg = Svg(top + ranks * height + 44, f"lag of each rank at each {noun}")
    for b in range(0, buckets, ceil((28 if buckets == len(arrays.buckets) else 56) / width)):
        svg.text(left + (b + 0.5) * width, top - 8, bucket_names[b], anchor="middle")
    for i in range(0, ranks, ceil(13 / height)):
        y = top + (i + 0.5) * height + 4
        name = rank_names[i]  # a range of them is wide enough by itself
        svg.text(left - 8, y, name if "-" in name else f"rank {name}", anchor="end")
    for (i, b), lag in np.ndenumerate(lags):
        where = f"rank {rank_names[i]}, {noun} {bucket_names[b]}"
        cell = {"x": left + b * width, "y": top + i * height,
                "width": width - 1, "height": height - 1}  # fmt: skip
        if isnan(lag):
            svg.add("rect", "unknown", tip=f"{where}: unknown", **cell)
            continue
        strength = _strength(lag / most if most > 0 else 0.0)
        tip = f"{where}: {milliseconds(lag)} ms after the first rank"
        svg.add("rect", "lag", tip=tip, opacity=strength, **cell)
        if width >= 40 and height >= 18:
            cls = "on-lag" if strength > 0.55 else "tick"
            svg.text(cell["x"] + (width - 1) / 2, cell["y"] + 13, milliseconds(lag), cls, "middle")
    bottom = top + ranks * height + 12
    for i in range(40):
        x, strength = left + 4.0 * i, _strength(i / 39)
        svg.add("rect", "lag", x=x, y=bottom, width=4.2, height=10, opacity=strength)
    svg.text(left, bottom + 24, "0")
    svg.text(left + 160, bottom + 24, ms(most), anchor="end")
    return svg


def _most_of(lags: Floats, rows: int) -> Floats:
    """Return rows put together until there are so many at most, the most of each column of them."""
    if len(lags) <= rows:
        return lags
    parts = _parted(len(lags), rows)
    return np.stack([np.fmax.reduce(lags[first : last + 1], axis=0) for first, last in parts])


def _parted(count: int, parts: int) -> list[tuple[int, int]]:
    """Return first and last of each part of so many things in a row."""
    each = ceil(count / parts)
    return [(first, min(first + each, count) - 1) for first in range(0, count, each)]


def _names(numbers: Sequence[int], rows: int) -> list[str]:
    if len(numbers) == rows:
        return [str(number) for number in numbers]
    parts = _parted(len(numbers), max(rows, 1))
    return [f"{numbers[first]}-{numbers[last]}" for first, last in parts]


def _strength(share: float) -> float:
    """Return the opacity of a share of the most: the least is still to be seen."""
    return 0.03 + 0.97 * share


_HEIGHT = 720.0
_MOST_LANES = 4
_TIPS_UP_TO = 16
MOST_RANKS = 64
"""In a picture; of more there are those that come last and first, and some between."""
_ENDS = 16


def step_pictures(arrays: StepArrays) -> list[tuple[str, Svg]]:
    """Return title and picture of a typical step and the slowest one, on one scale.

    Only one where they are the same.  A step's length is its period: its own communication, and the
    forward pass after it.
    """
    typical, arrays = arrays.typical, arrays.detailed
    if typical is None:
        return []
    usual, lengths = arrays.place_of(typical), arrays.lengths
    if np.isnan(lengths).all():
        chosen = {usual: "Step"}
    else:
        chosen = {int(np.nanargmax(lengths)): "Slowest step"} | {usual: "Typical step"}
    end = max(float(np.nanmax(arrays.done[:, s])) for s in chosen)
    found = []
    for s, name in reversed(chosen.items()):
        length = "" if np.isnan(lengths[s]) else f", {ms(lengths[s])} to the next one"
        found.append((f"{name}: {arrays.steps[s]}{length}", _draw(arrays, s, end)))
    return found


def step_picture(arrays: StepArrays, s: int) -> Svg:
    """Return the picture of the ``s``-th step, which has its buckets in the files."""
    return _draw(arrays, s, float(np.nanmax(arrays.done[:, s])))


def _lanes(ready: Floats, done: Floats) -> list[int]:
    """Return the lane of each bucket of a rank: the first that is free when it is ready."""
    lanes = [0] * len(ready)
    free = [-np.inf] * _MOST_LANES
    for b in np.argsort(ready):
        if not np.isnan(done[b]):
            fit = (k for k, at in enumerate(free) if at <= ready[b])
            lanes[b] = next(fit, int(np.argmin(free)))
            free[lanes[b]] = done[b]
    return lanes


def drawn_ranks(arrays: StepArrays, s: int) -> list[int]:
    """Return the places of the ranks that a step's picture shows: all, or ``MOST_RANKS`` of them.

    Those whose last bucket is ready last and first in the step, and others evenly between.
    """
    count = len(arrays.ranks)
    if count <= MOST_RANKS:
        return list(range(count))
    order = np.argsort(np.nan_to_num(arrays.last_ready[:, s], nan=np.inf), kind="stable")
    ends = {*order[:_ENDS].tolist(), *order[-_ENDS:].tolist()}
    others = [i for i in range(count) if i not in ends]
    between = np.linspace(0, len(others) - 1, MOST_RANKS - len(ends)).astype(int)
    return sorted(ends | {others[at] for at in between.tolist()})


def _draw(arrays: StepArrays, s: int, end: float) -> Svg:
    rows = drawn_ranks(arrays, s)
    ranks, all_ready, all_done = len(rows), arrays.ready[rows, s], arrays.done[rows, s]
    lanes = np.array([_lanes(*times) for times in zip(all_ready, all_done, strict=True)])
    per_rank = int(lanes.max()) + 1
    lane = min(11.0, max(2.0, _HEIGHT / (ranks * per_rank + ranks * 0.6)))
    gap = max(1.0, lane * 0.5)
    band = lane * per_rank + gap
    left, top = 76.0, 8.0
    svg = Svg(
        top + band * ranks + 24,
        f"step {arrays.steps[s]} on {'all' if ranks == len(arrays.ranks) else ranks} ranks",
    )
    across = Scale(0, end, left, WIDTH - 12)
    svg.x_axis(Scale(0, end / 1e6, left, WIDTH - 12), top + band * ranks, top, "ms")
    every = max(1, round(13 / band + 0.5)) if band < 13 else 1
    for row, i in enumerate(rows):
        rank, y, ready, done = arrays.ranks[i], top + row * band, all_ready[row], all_done[row]
        if row % every == 0:
            svg.text(left - 8, y + (band - gap) / 2 + 4, f"rank {rank}", anchor="end")
        if np.isnan(done).all():
            continue
        ended, over = across(np.nanmax(ready)), across(np.nanmax(done))
        # Of a sharded model, what is exposed is all over the step: wherever training waits.
        exposed = 0.0 if arrays.is_sharded else arrays.exposed[i, s]
        if exposed > 0:
            hidden = across(np.nanmax(done) - exposed)
            svg.add("rect", "exposed", x=hidden, y=y, width=over - hidden, height=band - gap)
        tops = y + lanes[row] * lane
        for name, boxes in _boxes(arrays, (i, s), across, tops).items():
            if name == "wait":
                svg.hatched(boxes, lane * 0.9)
            else:
                svg.path("".join(box(*one, lane * 0.9) for one in boxes), name)
        if not arrays.is_sharded:
            svg.line(ended, y - 1, ended, y + band - gap + 1, "ended")
        for b in np.flatnonzero(~np.isnan(done)) if ranks <= _TIPS_UP_TO else ():
            noun = "call" if arrays.is_sharded else "bucket"
            what = arrays.units.get(int(arrays.buckets[b]), f"{noun} {arrays.buckets[b]}")
            tip = f"rank {rank}, {what}: ready at {ms(ready[b])}, "
            tip += f"takes {ms(done[b] - ready[b])}"
            x, width = across(ready[b]), across(done[b]) - across(ready[b])
            svg.add("rect", "tip", x=x, y=tops[b], width=width, height=lane * 0.9, tip=tip)
    return svg


Boxes = dict[str, list[tuple[float, float, float]]]
"""By stage, and ``wait``: left and upper edge, and width, of each."""


def _boxes(arrays: StepArrays, at: tuple[int, int], across: Scale, tops: Floats) -> Boxes:
    """Return the buckets of a rank and step; ``tops``: the edge of each."""
    track, buckets = arrays.rows_of_step(*at)
    first, count = track.buckets.first_stage, track.buckets.stages
    found: Boxes = {}
    for row, b in buckets:
        ready = arrays.ready[(*at, b)]
        if np.isnan(ready):
            continue
        for k in range(first[row], first[row] + count[row]):
            for name, begin, end in _step_parts(arrays, track, at[0], k):
                left = across(ready + begin)
                width = max(across(ready + end) - left, 0.1)
                found.setdefault(name, []).append((left, tops[b], width))
    return found


def _step_parts(
    arrays: StepArrays, track: RankTrack, i: int, k: int
) -> Iterator[tuple[str, float, float]]:
    """Yield the parts of a stage: of wire what waits, and the transfer after it."""
    begin, end = float(track.stages.start[k]), float(track.stages.end[k])
    name = STAGE_NAMES[track.stages.name[k]]
    if name == "wire":
        (waited,) = arrays.waits.of_stages(i, np.array([k])).ns.tolist()
        if waited > 0:
            yield "wait", begin, begin + waited
            begin += waited
    yield name, begin, end
