"""One step on all ranks, drawn to scale: when each bucket was ready, and what it went through.

StepArrays --choose--> a typical step, the slowest step --rows of each track--> boxes by stage
"""

from __future__ import annotations

import numpy as np

from ...records.units import ms
from ..timeline import STAGE_NAMES
from .step_arrays import Floats, StepArrays, medians, middle
from .svg import WIDTH, Scale, Svg, box

_HEIGHT = 720.0
_MOST_LANES = 4
_TIPS_UP_TO = 16


def step_pictures(arrays: StepArrays) -> list[tuple[str, Svg]]:
    """Return title and picture of a typical step and the slowest one, on one scale.

    Only one where they are the same.  A step's length is its period: its own communication, and the
    forward pass after it.
    """
    drawn = (~np.isnan(arrays.done)).any(axis=(0, 2))
    if not drawn.any():
        return []
    lengths = np.where(drawn, medians(arrays.period, axis=0), np.nan)
    if np.isnan(lengths).all():
        chosen = {int(np.argmax(drawn)): "Step"}
    else:
        usual = int(np.nanargmin(np.abs(lengths - middle(lengths))))
        chosen = {int(np.nanargmax(lengths)): "Slowest step"} | {usual: "Typical step"}
    end = max(float(np.nanmax(arrays.done[:, s])) for s in chosen)
    found = []
    for s, name in reversed(chosen.items()):
        length = "" if np.isnan(lengths[s]) else f", {ms(lengths[s])} to the next one"
        found.append((f"{name}: {arrays.steps[s]}{length}", _draw(arrays, s, end)))
    return found


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


def _draw(arrays: StepArrays, s: int, end: float) -> Svg:
    ranks, all_ready, all_done = len(arrays.ranks), arrays.ready[:, s], arrays.done[:, s]
    lanes = np.array([_lanes(*times) for times in zip(all_ready, all_done, strict=True)])
    per_rank = int(lanes.max()) + 1
    lane = min(11.0, max(2.0, _HEIGHT / (ranks * per_rank + ranks * 0.6)))
    gap = max(1.0, lane * 0.5)
    band = lane * per_rank + gap
    left, top = 76.0, 8.0
    svg = Svg(top + band * ranks + 24, f"step {arrays.steps[s]} on all ranks")
    across = Scale(0, end, left, WIDTH - 12)
    svg.x_axis(Scale(0, end / 1e6, left, WIDTH - 12), top + band * ranks, top, "ms")
    every = max(1, round(13 / band + 0.5)) if band < 13 else 1
    for i, rank in enumerate(arrays.ranks):
        y, ready, done = top + i * band, all_ready[i], all_done[i]
        if i % every == 0:
            svg.text(left - 8, y + (band - gap) / 2 + 4, f"rank {rank}", anchor="end")
        if np.isnan(done).all():
            continue
        ended, over = across(np.nanmax(ready)), across(np.nanmax(done))
        if (exposed := arrays.exposed[i, s]) > 0:
            hidden = across(np.nanmax(done) - exposed)
            svg.add("rect", "exposed", x=hidden, y=y, width=over - hidden, height=band - gap)
        tops = y + lanes[i] * lane
        for name, path in _boxes(arrays, (i, s), across, tops, lane * 0.9).items():
            svg.path(path, name)
        svg.line(ended, y - 1, ended, y + band - gap + 1, "ended")
        for b in np.flatnonzero(~np.isnan(done)) if ranks <= _TIPS_UP_TO else ():
            tip = f"rank {rank}, bucket {arrays.buckets[b]}: ready at {ms(ready[b])}, "
            tip += f"takes {ms(done[b] - ready[b])}"
            x, width = across(ready[b]), across(done[b]) - across(ready[b])
            svg.add("rect", "tip", x=x, y=tops[b], width=width, height=lane * 0.9, tip=tip)
    return svg


def _boxes(
    arrays: StepArrays, at: tuple[int, int], across: Scale, tops: Floats, height: float
) -> dict[str, str]:
    """Return the buckets of a rank and step, one shape a stage; ``tops``: the edge of each."""
    track, buckets = arrays.rows_of_step(*at)
    stages, first = track.stages, track.buckets.first_stage
    found: dict[str, str] = {}
    for row, b in buckets:
        ready = arrays.ready[(*at, b)]
        if np.isnan(ready):
            continue
        for k in range(first[row], first[row] + track.buckets.stages[row]):
            begin = across(ready + float(stages.start[k]))
            width = max(across(ready + float(stages.end[k])) - begin, 0.1)
            name = STAGE_NAMES[stages.name[k]]
            found[name] = found.get(name, "") + box(begin, tops[b], width, height)
    return found
