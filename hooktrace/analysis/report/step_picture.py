"""One step on all ranks, drawn to scale: when each bucket was ready, and what it went through.

StepArrays --choose--> a typical step, the slowest step --rows of each track--> boxes by stage
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...records.units import ms
from ..timeline import STAGE_NAMES, Bools, RankTrack
from .step_arrays import Floats, StepArrays, medians, middle
from .svg import WIDTH, Scale, Svg, box

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
    usual, lengths = typical_step(arrays), _lengths(arrays)
    if usual is None:
        return []
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


def typical_step(arrays: StepArrays) -> int | None:
    """Return the place of the step whose length is nearest to the median of those with buckets.

    The first one where no length is known; ``None`` where none has its buckets in the files.
    """
    drawn, lengths = _is_drawn(arrays.sample), _lengths(arrays.sample)
    if not drawn.any():
        return None
    if np.isnan(lengths).all():
        return int(np.argmax(drawn))
    return int(np.nanargmin(np.abs(lengths - middle(lengths))))


def step_picture(arrays: StepArrays, s: int) -> Svg:
    """Return the picture of the ``s``-th step, which has its buckets in the files."""
    return _draw(arrays, s, float(np.nanmax(arrays.done[:, s])))


def _is_drawn(arrays: StepArrays) -> Bools:
    return np.asarray((~np.isnan(arrays.done)).any(axis=(0, 2)))


def _lengths(arrays: StepArrays) -> Floats:
    """Return how long the steps with buckets took, (S,)."""
    return np.where(_is_drawn(arrays), medians(arrays.period, axis=0), np.nan)


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
            for name, begin, end in _parts(arrays, track, (*at, b), k):
                left = across(ready + begin)
                width = max(across(ready + end) - left, 0.1)
                found.setdefault(name, []).append((left, tops[b], width))
    return found


def _parts(
    arrays: StepArrays, track: RankTrack, at: tuple[int, int, int], k: int
) -> Iterator[tuple[str, float, float]]:
    """Yield the parts of a stage: of wire what waits, and the transfer after it."""
    begin, end = float(track.stages.start[k]), float(track.stages.end[k])
    name = STAGE_NAMES[track.stages.name[k]]
    if name == "wire":
        i, *places = at
        (waited,) = arrays.waited.of_stages(i, *(np.array([x]) for x in (k, *places))).tolist()
        if waited > 0:
            yield "wait", begin, begin + waited
            begin += waited
    yield name, begin, end
