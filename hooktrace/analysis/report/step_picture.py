"""One step on all ranks, drawn to scale: when each bucket was ready, and what it went through.

Grid --choose--> a typical step, the slowest step --rows of each track--> boxes by stage
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...records.units import ms
from ..timeline import STAGE_NAMES, Ints, Timeline
from .facts import ModelFacts
from .step_arrays import Floats, Grid, middle
from .svg import Scale, Svg

__all__ = ["StepPicture", "step_pictures"]

_WIDTH = 1000.0
_HEIGHT = 720.0
_MOST_LANES = 4
_TIPS_UP_TO = 16


@dataclass(frozen=True, slots=True)
class StepPicture:
    """A picture and the line above it."""

    title: str
    svg: str


def step_pictures(model: ModelFacts, timeline: Timeline) -> list[StepPicture]:
    """Return a typical step and the slowest one, on one scale; only one where they are the same.

    A step's length is the time to the next step's first bucket: its own communication, and the
    forward pass after it.
    """
    grid = model.grid
    drawn = (~np.isnan(grid.done)).any(axis=(0, 2))
    if not drawn.any():
        return []
    lengths = np.where(drawn, _lengths(grid), np.nan)
    if np.isnan(lengths).all():
        chosen = [(int(np.argmax(drawn)), "step")]
    else:
        usual = int(np.nanargmin(np.abs(lengths - middle(lengths))))
        slowest = int(np.nanargmax(lengths))
        chosen = [(usual, "typical step"), (slowest, "slowest step")]
        if usual == slowest:
            chosen = chosen[:1]
    end = max(_end(grid, s) for s, _ in chosen)
    found = []
    for s, name in chosen:
        length = "" if np.isnan(lengths[s]) else f", {ms(float(lengths[s]))} to the next one"
        title = f"{name.capitalize()}: {int(grid.steps[s])}{length}"
        found.append(StepPicture(title, _draw(grid, timeline, s, end)))
    return found


def _lengths(grid: Grid) -> Floats:
    found = np.full(len(grid.steps), np.nan)
    for s in range(len(grid.steps) - 1):
        if grid.steps[s + 1] == grid.steps[s] + 1:
            found[s] = middle(grid.period[:, s + 1])
    return found


def _end(grid: Grid, s: int) -> float:
    done = grid.done[:, s]
    known = done[~np.isnan(done)]
    return float(known.max()) if known.size else 1.0


def _lanes(grid: Grid, s: int) -> Ints:
    """Return the lane of each bucket on each rank: the first that is free when it is ready."""
    lanes = np.zeros((len(grid.ranks), len(grid.buckets)), np.int64)
    for i in range(len(grid.ranks)):
        free = [-np.inf] * _MOST_LANES
        for b in np.argsort(grid.ready[i, s]):
            if np.isnan(grid.ready[i, s, b]) or np.isnan(grid.done[i, s, b]):
                continue
            fit = next((k for k, at in enumerate(free) if at <= grid.ready[i, s, b]), None)
            lane = int(np.argmin(free)) if fit is None else fit
            free[lane] = grid.done[i, s, b]
            lanes[i, b] = lane
    return lanes


def _draw(grid: Grid, timeline: Timeline, s: int, end: float) -> str:
    ranks = len(grid.ranks)
    lanes = _lanes(grid, s)
    per_rank = int(lanes.max()) + 1
    lane = min(11.0, max(2.0, _HEIGHT / (ranks * per_rank + ranks * 0.6)))
    gap = max(1.0, lane * 0.5)
    band = lane * per_rank + gap
    left, top = 76.0, 8.0
    bottom = top + band * ranks
    svg = Svg(_WIDTH, bottom + 24, f"step {int(grid.steps[s])} on all ranks")
    across = Scale(0, end / 1e6, left, _WIDTH - 12)
    svg.x_axis(across, bottom, top, "ms")
    every = max(1, round(13 / band + 0.5)) if band < 13 else 1
    for i, rank in enumerate(grid.ranks):
        y = top + i * band
        if i % every == 0:
            svg.text(left - 8, y + (band - gap) / 2 + 4, f"rank {rank}", "tick", "end")
        ready, done = grid.ready[i, s], grid.done[i, s]
        if np.isnan(done).all():
            continue
        ended, over = float(np.nanmax(ready)) / 1e6, float(np.nanmax(done)) / 1e6
        if over > ended:
            svg.rect(across(ended), y, across(over) - across(ended), band - gap, "exposed")
        row = _Row(i, s, y, lane, lanes[i])
        _boxes(svg, grid, timeline, across, row)
        svg.line(across(ended), y - 1, across(ended), y + band - gap + 1, "ended")
        if ranks <= _TIPS_UP_TO:
            _tips(svg, grid, across, row)
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


def _boxes(svg: Svg, grid: Grid, timeline: Timeline, across: Scale, row: _Row) -> None:
    """Add a rank's buckets, one shape a stage."""
    i, s = row.i, row.s
    track = timeline.tracks[i]
    columns, stages = track.buckets, track.stages
    ids = [k for k, (name, _) in enumerate(track.models) if name == grid.model]
    rows = np.flatnonzero((columns.step == grid.steps[s]) & np.isin(columns.model, ids))
    by_stage: dict[str, list[tuple[float, float, float, float]]] = {}
    for own in rows.tolist():
        b = int(np.searchsorted(grid.buckets, columns.bucket[own]))
        if b >= len(grid.buckets) or np.isnan(grid.ready[i, s, b]):
            continue
        shift = float(grid.ready[i, s, b]) - float(columns.ready[own])
        first = int(columns.first_stage[own])
        for k in range(first, first + int(columns.stages[own])):
            begin = across((float(stages.start[k]) + shift) / 1e6)
            width = across((float(stages.end[k]) + shift) / 1e6) - begin
            by_stage.setdefault(STAGE_NAMES[stages.name[k]], []).append(
                (begin, row.top(b), max(width, 0.1), row.lane * 0.9)
            )
    for name, boxes in by_stage.items():
        svg.boxes(boxes, name)


def _tips(svg: Svg, grid: Grid, across: Scale, row: _Row) -> None:
    """Add what a bucket is, to be seen when the pointer rests on it."""
    for b, bucket in enumerate(grid.buckets.tolist()):
        ready, done = float(grid.ready[row.i, row.s, b]), float(grid.done[row.i, row.s, b])
        if np.isnan(ready) or np.isnan(done):
            continue
        tip = f"rank {grid.ranks[row.i]}, bucket {bucket}: ready at {ms(ready)}, "
        tip += f"takes {ms(done - ready)}"
        x = across(ready / 1e6)
        svg.rect(x, row.top(b), across(done / 1e6) - x, row.lane * 0.9, "tip", tip=tip)
