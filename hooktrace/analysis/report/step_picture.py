"""One step on all ranks, drawn to scale: when each bucket was ready, and what it went through.

StepArrays --choose--> a typical step, the slowest step --rows of each track--> boxes by stage
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...records.units import ms
from ..timeline import STAGE_NAMES, Ints
from .step_arrays import Floats, StepArrays, middle
from .svg import Scale, Svg

_WIDTH = 1000.0
_HEIGHT = 720.0
_MOST_LANES = 4
_TIPS_UP_TO = 16


@dataclass(frozen=True, slots=True)
class StepPicture:
    """A picture and the line above it."""

    title: str
    svg: str


def step_pictures(arrays: StepArrays) -> list[StepPicture]:
    """Return a typical step and the slowest one, on one scale; only one where they are the same.

    A step's length is the time to the next step's first bucket: its own communication, and the
    forward pass after it.
    """
    drawn = (~np.isnan(arrays.done)).any(axis=(0, 2))
    if not drawn.any():
        return []
    lengths = np.where(drawn, _lengths(arrays), np.nan)
    if np.isnan(lengths).all():
        chosen = [(int(np.argmax(drawn)), "step")]
    else:
        usual = int(np.nanargmin(np.abs(lengths - middle(lengths))))
        slowest = int(np.nanargmax(lengths))
        chosen = [(usual, "typical step"), (slowest, "slowest step")]
        if usual == slowest:
            chosen = chosen[:1]
    end = max(_end(arrays, s) for s, _ in chosen)
    found = []
    for s, name in chosen:
        length = "" if np.isnan(lengths[s]) else f", {ms(float(lengths[s]))} to the next one"
        title = f"{name.capitalize()}: {int(arrays.steps[s])}{length}"
        found.append(StepPicture(title, _draw(arrays, s, end)))
    return found


def _lengths(arrays: StepArrays) -> Floats:
    found = np.full(len(arrays.steps), np.nan)
    for s in range(len(arrays.steps) - 1):
        if arrays.steps[s + 1] == arrays.steps[s] + 1:
            found[s] = middle(arrays.period[:, s + 1])
    return found


def _end(arrays: StepArrays, s: int) -> float:
    done = arrays.done[:, s]
    known = done[~np.isnan(done)]
    return float(known.max()) if known.size else 1.0


def _lanes(arrays: StepArrays, s: int) -> Ints:
    """Return the lane of each bucket on each rank: the first that is free when it is ready."""
    lanes = np.zeros((len(arrays.ranks), len(arrays.buckets)), np.int64)
    for i in range(len(arrays.ranks)):
        free = [-np.inf] * _MOST_LANES
        for b in np.argsort(arrays.ready[i, s]):
            if np.isnan(arrays.ready[i, s, b]) or np.isnan(arrays.done[i, s, b]):
                continue
            fit = next((k for k, at in enumerate(free) if at <= arrays.ready[i, s, b]), None)
            lane = int(np.argmin(free)) if fit is None else fit
            free[lane] = arrays.done[i, s, b]
            lanes[i, b] = lane
    return lanes


def _draw(arrays: StepArrays, s: int, end: float) -> str:
    ranks = len(arrays.ranks)
    lanes = _lanes(arrays, s)
    per_rank = int(lanes.max()) + 1
    lane = min(11.0, max(2.0, _HEIGHT / (ranks * per_rank + ranks * 0.6)))
    gap = max(1.0, lane * 0.5)
    band = lane * per_rank + gap
    left, top = 76.0, 8.0
    bottom = top + band * ranks
    svg = Svg(_WIDTH, bottom + 24, f"step {int(arrays.steps[s])} on all ranks")
    across = Scale(0, end / 1e6, left, _WIDTH - 12)
    svg.x_axis(across, bottom, top, "ms")
    every = max(1, round(13 / band + 0.5)) if band < 13 else 1
    for i, rank in enumerate(arrays.ranks):
        y = top + i * band
        if i % every == 0:
            svg.text(left - 8, y + (band - gap) / 2 + 4, f"rank {rank}", "tick", "end")
        ready, done = arrays.ready[i, s], arrays.done[i, s]
        if np.isnan(done).all():
            continue
        ended, over = float(np.nanmax(ready)) / 1e6, float(np.nanmax(done)) / 1e6
        if over > ended:
            svg.rect(across(ended), y, across(over) - across(ended), band - gap, "exposed")
        row = _Row(i, s, y, lane, lanes[i])
        _boxes(svg, arrays, across, row)
        svg.line(across(ended), y - 1, across(ended), y + band - gap + 1, "ended")
        if ranks <= _TIPS_UP_TO:
            _tips(svg, arrays, across, row)
    return str(svg)


@dataclass(frozen=True, slots=True)
class _Row:
    """Where one rank's step goes: ``lanes`` by bucket, each ``lane`` high, from ``y`` on."""

    i: int
    s: int
    y: float
    lane: float
    lanes: Ints

    def top(self, b: int) -> float:
        """Return the upper edge of a bucket."""
        return self.y + float(self.lanes[b]) * self.lane


def _boxes(svg: Svg, arrays: StepArrays, across: Scale, row: _Row) -> None:
    """Add a rank's buckets, one shape a stage."""
    i, s = row.i, row.s
    track, buckets = arrays.rows_of_step(i, s)
    columns, stages = track.buckets, track.stages
    first = columns.first_stage
    by_stage: dict[str, list[tuple[float, float, float, float]]] = {}
    for own, b in buckets:
        if np.isnan(arrays.ready[i, s, b]):
            continue
        ready = float(arrays.ready[i, s, b])
        for k in range(first[own], first[own] + columns.stages[own]):
            begin = across((ready + float(stages.start[k])) / 1e6)
            width = across((ready + float(stages.end[k])) / 1e6) - begin
            by_stage.setdefault(STAGE_NAMES[stages.name[k]], []).append(
                (begin, row.top(b), max(width, 0.1), row.lane * 0.9)
            )
    for name, boxes in by_stage.items():
        svg.boxes(boxes, name)


def _tips(svg: Svg, arrays: StepArrays, across: Scale, row: _Row) -> None:
    """Add what a bucket is, to be seen when the pointer rests on it."""
    for b, bucket in enumerate(arrays.buckets.tolist()):
        ready, done = float(arrays.ready[row.i, row.s, b]), float(arrays.done[row.i, row.s, b])
        if np.isnan(ready) or np.isnan(done):
            continue
        tip = f"rank {arrays.ranks[row.i]}, bucket {bucket}: ready at {ms(ready)}, "
        tip += f"takes {ms(done - ready)}"
        x = across(ready / 1e6)
        svg.rect(x, row.top(b), across(done / 1e6) - x, row.lane * 0.9, "tip", tip=tip)
