"""Pictures of one model: StepArrays --> Svg of a typical step and of the slowest, on all ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from html import escape
from math import ceil, floor, isnan, log10

import numpy as np

from ...records.units import ms
from ..run.columns import Floats, Ints
from ..run.dense import StepArrays
from ..run.scene import free_rows
from ..run.waits import PIECES, pieces_of

WIDTH = 1000.0
"""Units that every picture is wide."""
MOST_RANKS = 64
"""In the picture of a step."""
_MOST_LANES = 4
_HEIGHT = 720.0
_TOP, _LEFT = 8.0, 76.0
"""Where bars begin: below the edge, and after their names."""
_WAIT = PIECES.index("wait")


def step_pictures(arrays: StepArrays) -> list[tuple[str, Callable[[], Svg]]]:
    """Return the titles of a typical step and the slowest, and what draws them on one scale.

    Of those that were timed; only one where they are the same.  A step's length is its period: its
    own communication, and the forward pass after it.
    """
    typical, arrays = arrays.typical, arrays.detailed
    if typical is None:
        return []
    usual, lengths = int(np.searchsorted(arrays.steps, typical)), arrays.lengths
    chosen = {usual: "Step"}
    if not np.isnan(lengths).all():
        chosen = {usual: "Typical step"}
        slowest = "Slowest step" if arrays.has_times.all() else "Slowest timed step"
        chosen.setdefault(int(np.nanargmax(lengths)), slowest)
    # A step whose times are all the same has no length to draw it by.
    end = max(1.0, *(float(np.nanmax(arrays.done[:, s])) for s in chosen))
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
    lanes = _lanes(arrays.ready[ranks, s], arrays.done[ranks, s])
    per_rank = 1 + int(lanes.max())
    thick = min(11.0, max(2.0, _HEIGHT / (count * per_rank + count * 0.6)))
    gap = max(1.0, thick * 0.5)
    band = thick * per_rank + gap
    bottom = _TOP + band * count
    which = "all" if count == len(arrays.ranks) else count
    svg = Svg(bottom + 24, f"step {arrays.steps[s]} on {which} ranks")
    per_ns = (WIDTH - 12 - _LEFT) / end
    marks = _ticks(end / 1e6)
    for value in marks:
        x = _LEFT + value * 1e6 * per_ns
        svg.path(box(x, _TOP, 0, bottom - _TOP), "grid")
        svg.text(x, bottom + 14, f"{value:,g}{' ms' if value == marks[-1] else ''}")
    paths: dict[str, list[str]] = {name: [] for name in ("exposed", *PIECES, "ended")}
    for row, i in enumerate(ranks):
        y = _TOP + row * band
        if row % max(1, ceil(13 / band)) == 0:
            svg.text(_LEFT - 8, y + (band - gap) / 2 + 4, f"rank {arrays.ranks[i]}", "end")
        for name, start, done, b in _shapes(arrays, i, s):
            x, width = _LEFT + start * per_ns, max((done - start) * per_ns, 0.1)
            top, height = (y, band - gap) if b is None else (y + lanes[row, b] * thick, thick * 0.9)
            paths[name].append(box(x, top, width, height))
    for name, boxes in paths.items():
        if boxes:
            svg.path("".join(boxes), name)
    return svg


def _shapes(arrays: StepArrays, i: int, s: int) -> Iterator[tuple[str, float, float, int | None]]:
    """Yield what is drawn of a rank's step: class, start and end, ns, and of which bucket."""
    ready, done, exposed = arrays.ready[i, s], arrays.done[i, s], arrays.exposed[i, s]
    # Of a sharded model, what is exposed is all over the step: wherever training waits.
    if not arrays.is_sharded and not np.isnan(done).all():
        if exposed > 0:
            yield "exposed", np.nanmax(done) - exposed, np.nanmax(done), None
        yield "ended", np.nanmax(ready), np.nanmax(ready), None
    track, rows, step, bucket = arrays.rows_of_rank(i)
    rows, bucket = rows[step == s], bucket[step == s]
    pieces = pieces_of(track, rows, arrays.waits.waited[i])
    b = bucket[pieces.of]
    times = ready[b] + pieces.start, ready[b] + pieces.end
    for kind, of, start, end in zip(pieces.kind.tolist(), b.tolist(), *times, strict=True):
        if end > start or (kind != _WAIT and not isnan(start)):
            yield PIECES[kind], start, end, of


def _ticks(end: float) -> list[float]:
    """Return round numbers from 0 to ``end``: 1, 2 or 5 times a power of ten apart."""
    power = 10.0 ** floor(log10(end / 6))
    apart = next(m * power for m in (1, 2, 5, 10) if m * power >= end / 6)
    return [k * apart for k in range(floor(end / apart * (1 + 1e-9)) + 1)]


def _lanes(ready: Floats, done: Floats) -> Ints:
    """Return the lane of each rank's buckets, (R, B): the first that is free when one is ready."""
    lanes = np.zeros(done.shape, np.int64)
    at = np.flatnonzero(~np.isnan(done))
    at = at[np.argsort(ready.flat[at], kind="stable")]
    start, end = (times.flat[at].astype(np.int64) for times in (ready, done))
    lanes.flat[at] = free_rows(start, end, at // done.shape[1], most=_MOST_LANES)
    return lanes


class Svg:
    """Paths and texts of a picture ``WIDTH`` x ``height``; ``title`` says what it shows."""

    def __init__(self, height: float, title: str) -> None:
        self._height, self._title = height, title
        self._parts: list[str] = []

    def path(self, path: str, cls: str) -> None:
        """Add boxes and lines, joined."""
        self._parts.append(f'<path class="{cls}" d="{path}"/>')

    def text(self, x: float, y: float, text: str, anchor: str = "middle") -> None:
        """Add a line of text whose baseline is at ``y``."""
        at = f'x="{_n(x)}" y="{_n(y)}" class="tick" text-anchor="{anchor}"'
        self._parts.append(f"<text {at}>{escape(text)}</text>")

    def __html__(self) -> str:
        """Return the picture; Jinja2 does not escape what has this method."""
        return (
            f'<svg viewBox="0 0 {_n(WIDTH)} {_n(self._height)}" role="img" '
            f'aria-label="{escape(self._title)}">{"".join(self._parts)}</svg>'
        )


def box(x: float, y: float, width: float, height: float) -> str:
    """Return a rectangle."""
    return f"M{_n(x)} {_n(y)}h{_n(width)}v{_n(height)}h{_n(-width)}z"


def _n(value: float) -> str:
    """Return a coordinate to a tenth of a unit, without needless zeros."""
    return f"{value:.1f}".removesuffix(".0")
