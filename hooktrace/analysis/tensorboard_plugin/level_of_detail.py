"""What to draw of a stretch of time: single bars where they are wide enough, else merged ones.

    Scene, t0, t1, width in px --picture--> per rank: bars with stages, bins, steps, marks, hangs,
                                           other collectives

A bucket that is at least ``narrowest`` px wide is a bar of its own.  All others go into bins of
their lane: how much of the bin they cover, and the shares of the stages.  ``narrowest`` is doubled
until at most ``MAX_BARS`` are left, and bins are as wide as ``MAX_BINS`` demands, so that the
answer is bounded whatever the run.  All times are ns after ``t0``; arrays are flat, one entry a
bar, so that a browser reads them quickly.  Stages of single bars are pieces of one kind each, cut
to their bucket as in the Perfetto file: a wire stage that waited is two.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ..run import Ints
from ..run.waits import PIECES, Pieces, pieces_of
from . import other_bars
from .run_summary import layout_text
from .scene import KINDS, LATE, Floats, RankScene, Scene
from .units import Spans

MAX_BARS = 2500
"""Single bars in a picture, all ranks together."""
MAX_BINS = 8000
"""Merged bars in a picture."""
MAX_STEPS = 2000
"""Steps in a picture; beyond it there is room for none."""
MAX_MARKS = 300
"""Anomalies, rebuilds and hangs each rank shows at once."""
_LEAST_SHARE = 0.005
"""Of a bin that is exposed, to be drawn."""
_WAIT = PIECES.index("wait")
_NARROWEST_PX = 3.0
_BIN_PX = 3.0


def picture(scene: Scene, t0: int, t1: int, width: int) -> dict[str, Any]:
    """Return what to draw between ``t0`` and ``t1`` (ns since the origin) on ``width`` px.

    Raises ``ValueError`` for an empty stretch or no width.
    """
    if t1 <= t0 or width < 1:
        raise ValueError("t1 must be after t0, and the width at least 1 px")
    px_ns = (t1 - t0) / width
    inside = [r.buckets.inside(t0, t1) for r in scene.ranks]
    durations = [
        (r.buckets.end - r.buckets.start)[i] for r, i in zip(scene.ranks, inside, strict=True)
    ]
    narrowest_ns = _narrowest(durations, px_ns)
    narrow = [rows[d < narrowest_ns] for rows, d in zip(inside, durations, strict=True)]
    wide = [rows[d >= narrowest_ns] for rows, d in zip(inside, durations, strict=True)]
    grid = _grid(scene, narrow, t0, t1, width)
    of_steps = [r.steps.inside(t0, t1) for r in scene.ranks]
    with_steps = sum(len(i) for i in of_steps) <= MAX_STEPS
    ranks = [
        {
            "rank": rank.rank,
            "bars": _bars(rank, single, t0),
            "bins": _bins(rank, merged, grid),
            "steps": _steps(rank, steps if with_steps else steps[:0], t0),
            "exposed": _binned(rank.exposed_at, t0, t1, width),
            "marks": _marks(rank, t0, t1),
            "hangs": _hangs(rank, t0, t1),
            "others": _others(rank, t0, t1, scene.others_lane),
        }
        for rank, single, merged, steps in zip(scene.ranks, wide, narrow, of_steps, strict=True)
    ]
    return {
        "t0": t0,
        "t1": t1,
        "bin_ns": grid.bin_ns,
        "merged": sum(map(len, narrow)),
        "single": sum(map(len, wide)),
        "collectives": collectives(zip(scene.ranks, wide, strict=True)),
        "wait_unknown": scene.waits.why_missing,
        "ruler": _ruler(scene, of_steps, t0, width),
        "units": [{"name": one.name, "call": str(one), "turn": one.turn} for one in scene.units],
        "ranks": ranks,
    }


def _narrowest(durations: list[Ints], px_ns: float) -> float:
    """Return from which length on a bucket is a bar of its own, ns."""
    every = np.concatenate(durations) if durations else np.zeros(0, np.int64)
    narrowest = _NARROWEST_PX * px_ns
    while int((every >= narrowest).sum()) > MAX_BARS:
        narrowest *= 2
    return narrowest


def _bars(rank: RankScene, at: Ints, t0: int) -> dict[str, Any]:
    pieces = _clipped(rank, at)
    there = (pieces.kind != _WAIT) | (pieces.end > pieces.start)
    return {
        "id": rank.buckets.row[at].tolist(),
        "lane": rank.lane[at].tolist(),
        "start": (rank.buckets.start[at] - t0).tolist(),
        "end": (rank.buckets.end[at] - t0).tolist(),
        "step": rank.step[at].tolist(),
        "bucket": rank.bucket[at].tolist(),
        "unit": rank.unit[at].tolist(),
        "flags": rank.flags[at].tolist(),
        "stages": np.bincount(pieces.of[there], minlength=len(at)).tolist(),
        "stage": pieces.kind[there].tolist(),
        "stage_start": (pieces.start[there] - t0).tolist(),
        "stage_end": (pieces.end[there] - t0).tolist(),
    }


class _Grid(NamedTuple):
    """Bins of ``bin_ns``, ``bins`` of them from ``t0`` on, in each of ``lanes``."""

    t0: int
    bin_ns: float
    bins: int
    lanes: int

    def cells(self, rank: RankScene, at: Ints) -> Ints:
        """Return the cell of each bucket's middle: its lane times ``bins`` plus its bin."""
        middle = (rank.buckets.start[at] + rank.buckets.end[at]) // 2 - self.t0
        place = np.clip((middle / self.bin_ns).astype(np.int64), 0, self.bins - 1)
        found: Ints = rank.lane[at] * self.bins + place
        return found


def _grid(scene: Scene, narrow: list[Ints], t0: int, t1: int, width: int) -> _Grid:
    """Return the finest grid of which no more than ``MAX_BINS`` cells are used."""
    count = max(1, int(width / _BIN_PX))
    while True:
        grid = _Grid(t0, (t1 - t0) / count, count, scene.lanes)
        pairs = zip(scene.ranks, narrow, strict=True)
        used = sum(np.count_nonzero(np.bincount(grid.cells(rank, at))) for rank, at in pairs)
        if used <= MAX_BINS or count == 1:
            return grid
        count = max(1, count // 2)


def _bins(rank: RankScene, at: Ints, grid: _Grid) -> dict[str, Any]:
    kinds = len(KINDS)
    cell = grid.cells(rank, at)
    size = grid.lanes * grid.bins
    count = np.bincount(cell, minlength=size)
    used = np.flatnonzero(count)
    spent = np.stack(
        [np.bincount(cell, weights=rank.spent[at, k], minlength=size)[used] for k in range(kinds)],
        axis=1,
    )
    total = spent.sum(axis=1)
    shares = np.rint(100 * spent / np.maximum(total, 1)[:, None]).astype(np.int64)
    cover = np.clip(np.rint(100 * total / grid.bin_ns), 1, 100).astype(np.int64)
    late = np.bincount(cell, weights=(rank.flags[at] & LATE) != 0, minlength=size)[used]
    return {
        "lane": (used // grid.bins).tolist(),
        "bin": (used % grid.bins).tolist(),
        "count": count[used].tolist(),
        "cover": cover.tolist(),
        "late": late.astype(np.int64).tolist(),
        "shares": shares.ravel().tolist(),
    }


def _steps(rank: RankScene, at: Ints, t0: int) -> dict[str, Any]:
    return {
        "step": rank.number[at].tolist(),
        "start": (rank.steps.start[at] - t0).tolist(),
        "last_ready": (rank.last_ready[at] - t0).tolist(),
        "end": (rank.steps.end[at] - t0).tolist(),
        "exposed": rank.exposed[at].tolist(),
        "flags": rank.track.steps.flags[rank.steps.row[at]].tolist(),
    }


def _ruler(scene: Scene, of_steps: list[Ints], t0: int, width: int) -> dict[str, Any]:
    """Return steps for the ruler, thinned out to one every 8 px at most."""
    longest = max(range(len(of_steps)), key=lambda i: len(of_steps[i]), default=None)
    if longest is None:
        return {"step": [], "start": [], "every": 1}
    rank, at = scene.ranks[longest], of_steps[longest]
    every = 1
    while len(at) / every > width / 8:
        every = _next_round(every)
    at = at[rank.number[at] % every == 0] if every > 1 else at
    return {
        "step": rank.number[at].tolist(),
        "start": (rank.steps.start[at] - t0).tolist(),
        "every": every,
    }


def _next_round(every: int) -> int:
    """Return 2 after 1, 5 after 2, 10 after 5, and so on."""
    return every * 5 // 2 if str(every)[0] == "2" else every * 2


def _hangs(rank: RankScene, t0: int, t1: int) -> list[dict[str, Any]]:
    return [
        bar.drawn(rank.rank, t0)
        for bar in rank.hangs
        if bar.start <= t1 and (bar.end is None or bar.end >= t0)
    ][:MAX_MARKS]


def _others(rank: RankScene, t0: int, t1: int, lane: int | None) -> list[dict[str, Any]]:
    return [] if lane is None else other_bars.drawn(rank.track, rank.others, t0, t1, lane)


def _binned(spans: Spans, t0: int, t1: int, width: int) -> dict[str, list[int]]:
    """Return stretches: those that are wide enough, and of bins which share of them, in percent.

    Many that are narrower than a bin would else look as if they filled it.
    """
    bins = max(1, int(width / _BIN_PX))
    at, bin_ns = spans.inside(t0, t1), (t1 - t0) / bins
    start, end = np.maximum(spans.start[at], t0) - t0, np.minimum(spans.end[at], t1) - t0
    wide = end - start >= bin_ns
    covered = _covered(start[~wide] / bin_ns, end[~wide] / bin_ns, bins)
    used = np.flatnonzero(covered >= _LEAST_SHARE)
    share = np.rint(100 * np.minimum(covered[used], 1)).astype(np.int64)
    return {
        "start": [*start[wide].tolist(), *(used * bin_ns).astype(np.int64).tolist()],
        "end": [*end[wide].tolist(), *((used + 1) * bin_ns).astype(np.int64).tolist()],
        "share": [*[100] * int(wide.sum()), *share.tolist()],
    }


def _covered(start: Floats, end: Floats, bins: int) -> Floats:
    """Return how much of each bin stretches cover that are no longer than one; all in bins."""
    first = np.clip(start.astype(np.int64), 0, bins - 1)
    inside = np.minimum(end, first + 1) - start
    after = np.clip(first + 1, 0, bins - 1)
    beyond = np.maximum(end - start - inside, 0)
    found = np.bincount(first, inside, bins) + np.bincount(after, beyond, bins)
    return found.astype(np.float64)


def _marks(rank: RankScene, t0: int, t1: int) -> list[dict[str, Any]]:
    found = [
        {"at": at - t0, "kind": "anomaly", "title": a.kind, "step": a.step, "text": a.message}
        for at, a in rank.anomalies
        if t0 <= at <= t1
    ][:MAX_MARKS]
    found += [
        {
            "at": at - t0,
            "kind": "rebuild",
            "title": f"generation {x.generation}",
            "step": x.step,
            "text": layout_text(x),
        }
        for at, x in rank.layouts
        if t0 <= at <= t1
    ][:MAX_MARKS]
    return found


def _clipped(rank: RankScene, at: Ints) -> Pieces:
    """Return the pieces of some of a rank's buckets, cut to these, in ns since the origin."""
    found = pieces_of(rank.track, rank.buckets.row[at], rank.waited)
    begun, done = rank.buckets.start[at][found.of], rank.buckets.end[at][found.of]
    start, end = (np.clip(begun + times, begun, done) for times in (found.start, found.end))
    return found._replace(start=start, end=end)


def collectives(bars: Iterable[tuple[RankScene, Ints]]) -> list[dict[str, Any]]:
    """Return the collectives in which another rank waited for the last one, where that is known.

    ``bars``: ranks and rows of their buckets.  ``at``, ``lane``: when ``last`` began, and its row;
    ``at`` is ``None`` if that is not among ``bars``.  ``waiting``: rank, row, start and end of each
    that waited.  Times are ns since the origin.
    """
    found: dict[tuple[int, ...], dict[str, Any]] = {}
    for rank, at in bars:
        for step, bucket, turn, last, lane, start, end in _waits(rank, at):
            key = step, bucket, turn, last
            begun = {"step": step, "bucket": bucket, "last": last, "at": None, "lane": 0}
            one = found.setdefault(key, {**begun, "waiting": []})
            if rank.rank == last:
                one.update(at=start, lane=lane)
            elif end > start:
                one["waiting"].append({"rank": rank.rank, "lane": lane, "start": start, "at": end})
    return [one for one in found.values() if one["waiting"]]


def _waits(rank: RankScene, at: Ints) -> Iterator[tuple[int, ...]]:
    """Yield step, bucket, which wait of its bucket, the last rank, row, start and end.

    The k-th of a bucket is in the same collective on all ranks.
    """
    found = _clipped(rank, at)
    is_wait = found.kind == _WAIT
    _, of, row, start, end = (column[is_wait] for column in found)
    which, last, own = np.arange(len(of)) - np.searchsorted(of, of), rank.waited_for[row], at[of]
    columns = rank.step[own], rank.bucket[own], which, last, rank.lane[own], start, end
    yield from zip(*(column[last >= 0].tolist() for column in columns), strict=True)
