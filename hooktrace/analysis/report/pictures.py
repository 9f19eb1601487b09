"""Pictures of one model: a step on all ranks.

StepArrays --> Svg of a typical step and of the slowest one
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import ceil, isnan
from typing import NamedTuple

import numpy as np

from ...records.units import ms
from ..document.svg import WIDTH, Scale, Svg, box
from ..run.dense import Floats, StepArrays
from ..run.waits import PIECES, pieces_of

MOST_RANKS = 64
"""In the picture of a step."""
_MOST_LANES = 4
_HEIGHT = 720.0
_LEFT = 76.0
"""Where bars begin, after their names."""
_WAIT = PIECES.index("wait")


def step_pictures(arrays: StepArrays) -> list[tuple[str, Callable[[], Svg]]]:
    """Return the titles of a typical step and the slowest one, and what draws them on one scale.

    Only one where they are the same.  A step's length is its period: its own communication, and the
    forward pass after it.
    """
    typical, arrays = arrays.typical, arrays.detailed
    if typical is None:
        return []
    usual, lengths = arrays.place_of(typical), arrays.lengths
    chosen = {usual: "Step"}
    if not np.isnan(lengths).all():
        chosen = {usual: "Typical step"}
        chosen.setdefault(int(np.nanargmax(lengths)), "Slowest step")
    end = max(float(np.nanmax(arrays.done[:, s])) for s in chosen)
    found: list[tuple[str, Callable[[], Svg]]] = []
    for s, name in chosen.items():
        length = "" if np.isnan(lengths[s]) else f", {ms(lengths[s])} to the next one"
        found.append((f"{name}: {arrays.steps[s]}{length}", partial(_step_picture, arrays, s, end)))
    return found


def _step_picture(arrays: StepArrays, s: int, end: float) -> Svg:
    """Return the picture of the ``s``-th step, which has its buckets in the files, until ``end``.

    Of more ranks than ``MOST_RANKS`` those whose last bucket is ready last and first in the step,
    and others evenly between.
    """
    by_time = np.argsort(np.nan_to_num(arrays.last_ready[:, s], nan=np.inf), kind="stable")
    count = min(len(by_time), MOST_RANKS)
    ranks = np.sort(by_time[np.linspace(0, len(by_time) - 1, count).astype(int)]).tolist()
    lanes = [_lanes(arrays.ready[i, s], arrays.done[i, s]) for i in ranks]
    per_rank = 1 + max(map(max, lanes))
    lane = min(11.0, max(2.0, _HEIGHT / (count * per_rank + count * 0.6)))
    gap = max(1.0, lane * 0.5)
    band = lane * per_rank + gap
    bottom = 8 + band * count
    which = "all" if count == len(arrays.ranks) else count
    svg = Svg(bottom + 24, f"step {arrays.steps[s]} on {which} ranks")
    across = Scale(0, end, _LEFT, WIDTH - 12)
    svg.x_axis(Scale(0, end / 1e6, _LEFT, WIDTH - 12), bottom, 8, "ms")
    for row, i in enumerate(ranks):
        y = 8 + row * band
        if row % max(1, ceil(13 / band)) == 0:
            name = f"rank {arrays.ranks[i]}"
            svg.text(_LEFT - 8, y + (band - gap) / 2 + 4, name, anchor="end")
        if not np.isnan(arrays.done[i, s]).all():
            tops = y + np.array(lanes[row]) * lane
            where = _Where((i, s), across, tops, lane * 0.9, y, y + band - gap)
            _draw_rank(svg, arrays, where)
    return svg


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


class _Where(NamedTuple):
    """Where a rank's step is drawn: its place in the arrays, ``tops`` of its buckets, its edges."""

    at: tuple[int, int]
    across: Scale
    tops: Floats
    thick: float
    y: float
    below: float


def _draw_rank(svg: Svg, arrays: StepArrays, where: _Where) -> None:
    at, across, tops, thick, y, below = where
    ready, done = arrays.ready[at], arrays.done[at]
    # Of a sharded model, what is exposed is all over the step: wherever training waits.
    if not arrays.is_sharded and arrays.exposed[at] > 0:
        over, hidden = across(np.nanmax(done)), across(np.nanmax(done) - arrays.exposed[at])
        svg.add("rect", "exposed", x=hidden, y=y, width=over - hidden, height=below - y)
    boxes: dict[str, list[tuple[float, float, float]]] = {}
    track, rows, step, bucket = arrays.rows_of_rank(at[0])
    rows, bucket = rows[step == at[1]], bucket[step == at[1]]
    pieces = pieces_of(track, rows, arrays.waits.waited[at[0]])
    b = bucket[pieces.of]
    ends = (ready[b] + pieces.start, ready[b] + pieces.end)
    for kind, top, *spans in zip(pieces.kind.tolist(), tops[b], *ends, strict=True):
        start, stop = map(across, spans)
        if not isnan(start) and (stop > start or kind != _WAIT):
            boxes.setdefault(PIECES[kind], []).append((start, top, max(stop - start, 0.1)))
    for name, own in boxes.items():
        if name == "wait":
            svg.hatched(own, thick)
        else:
            svg.path("".join(box(*one, thick) for one in own), name)
    if not arrays.is_sharded:
        ended = across(np.nanmax(ready))
        svg.line(ended, y - 1, ended, below + 1, "ended")
