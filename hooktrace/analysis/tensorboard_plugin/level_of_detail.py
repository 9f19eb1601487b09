"""What to draw of a stretch of time: single bars where they are wide enough, else merged ones.

    Scene, Look --picture--> per rank what to draw: bars with stages, merged bars, marks

A bucket that is at least ``narrowest`` px wide is a bar of its own.  All others go into bins of
their lane: how much of the bin they cover, and the shares of the stages.  ``narrowest`` is doubled
until at most ``MAX_BARS`` are left, and bins are as wide as ``MAX_BINS`` demands, so that the
answer is bounded whatever the run.  All times are ns since the origin; arrays are flat, one entry a
bar, so that a browser reads them quickly.  Stages of single bars are pieces of one kind each, cut
to their bucket as in the Perfetto file: a wire stage that waited is two.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from ...records.units import size, time_text
from ..run import Ints
from ..run.scene import LATE, Bars, Scene, Spans
from ..run.waits import PIECES, Pieces

MAX_BARS = 2500
"""Single bars in a picture, all ranks together."""
MAX_BINS = 8000
"""Merged bars in a picture."""
MAX_STEPS = 2000
"""Steps in a picture; beyond it there is room for none."""
MAX_MARKS = 300
"""Anomalies, hangs, and other collectives that a rank shows at once."""
_LEAST_SHARE = 0.005
"""Of a bin that is exposed, to be drawn."""
_WAIT = PIECES.index("wait")
_NARROWEST_PX = 3.0
_BIN_PX = 3.0

_OfRanks = list[dict[str, Any]]


class Look(NamedTuple):
    """What is looked at: ns since the origin, on ``width`` px, and which ranks, by their places.

    ``strips``: each rank has one row, of its buckets alone.
    """

    t0: int
    t1: int
    width: int
    ranks: list[int]
    strips: bool = False

    @property
    def bins(self) -> int:
        """How many bins there is room for."""
        return max(1, int(self.width / _BIN_PX))

    def bin_of(self, start: Ints, end: Ints, bins: int) -> Ints:
        """Return the bin, of so many, in which the middle of each stretch is."""
        middle = (start + end) // 2 - self.t0
        return np.clip((middle / (self.t1 - self.t0) * bins).astype(np.int64), 0, bins - 1)

    def split(self, rank: Ints, **columns: Any) -> _OfRanks:
        """Return each rank's part of columns; ``rank``: of each of their rows, ascending."""
        lows, highs = (np.searchsorted(rank, self.ranks, side) for side in ("left", "right"))
        return [
            {name: values[low:high].ravel().tolist() for name, values in columns.items()}
            for low, high in zip(lows, highs, strict=True)
        ]


def picture(scene: Scene, look: Look) -> dict[str, Any]:
    """Return what to draw; raises ``ValueError`` for an empty stretch or no width."""
    t0, t1, width, ranks, _ = look
    if t1 <= t0 or width < 1:
        raise ValueError("t1 must be after t0, and the width at least 1 px")
    bars = scene.bars
    if look.strips:
        bars = replace(bars, lane=np.zeros_like(bars.lane))
    inside = bars.inside(t0, t1, ranks)
    took = (bars.end - bars.start)[inside]
    narrowest = _NARROWEST_PX * (t1 - t0) / width
    while np.count_nonzero(took >= narrowest) > MAX_BARS:
        narrowest *= 2
    single = bars.at(inside[took >= narrowest])
    pieces = scene.pieces(single)
    bin_ns, bins = _bins(scene, bars, inside[took < narrowest], look)
    of_ranks: dict[str, list[Any]] = {
        "bars": _bars(single, pieces, look),
        "bins": bins,
        "steps": _steps(scene, look),
        "exposed": _exposed(scene, look),
        "marks": _listed(look, _marks(scene, look)),
        "hangs": _listed(look, _hangs(scene, look)),
        "others": _listed(look, () if look.strips else _others(scene, look)),
    }
    return {
        "t0": t0,
        "t1": t1,
        "bin_ns": bin_ns,
        "collectives": collectives(scene, single, pieces),
        "wait_unknown": scene.waits.why_unknown,
        "ruler": _ruler(scene, look),
        "units": [
            {"name": one.name, "call": str(one), "repeat": one.repeat} for one in scene.units
        ],
        "ranks": [
            {"rank": scene.numbers[rank], **{name: part[i] for name, part in of_ranks.items()}}
            for i, rank in enumerate(ranks)
        ],
    }


def _bars(bars: Bars, pieces: Pieces, look: Look) -> _OfRanks:
    drawn = pieces.at((pieces.kind != _WAIT) | (pieces.end > pieces.start))
    names = ("lane", "start", "end", "step", "bucket", "unit", "flags")
    columns = {name: getattr(bars, name) for name in names}
    count = np.bincount(drawn.of, minlength=len(bars))
    of_bars = look.split(bars.rank, id=bars.row, stages=count, **columns)
    stages = {"stage": drawn.kind, "stage_start": drawn.start, "stage_end": drawn.end}
    of_stages = look.split(bars.rank[drawn.of], **stages)
    return [own | its for own, its in zip(of_bars, of_stages, strict=True)]


def _bins(scene: Scene, bars: Bars, merged: Ints, look: Look) -> tuple[float, _OfRanks]:
    """Return the bins' length, ns, and what is in them: the finest ones that are not too many.

    ``merged``: the places of the bars that are in them.
    """
    bars = bars.at(merged)
    row = np.searchsorted(look.ranks, bars.rank) * scene.lanes + bars.lane
    bins = look.bins
    while True:
        bin_ns = (look.t1 - look.t0) / bins
        cell = row * bins + look.bin_of(bars.start, bars.end, bins)
        count = np.bincount(cell)
        used = np.flatnonzero(count)
        if len(used) <= MAX_BINS or bins == 1:
            break
        bins //= 2
    place = (np.cumsum(count > 0) - 1)[cell]

    def sums(weights: Any) -> Any:
        return np.bincount(place, weights=weights, minlength=len(used))

    spent = np.zeros((len(used), len(scene.spent)))
    for kind, ns in enumerate(scene.spent):
        if ns.any():
            spent[:, kind] = sums(ns[merged])
    total = spent.sum(axis=1)
    return bin_ns, look.split(
        np.array(look.ranks, np.int64)[used // bins // scene.lanes],
        lane=used // bins % scene.lanes,
        bin=used % bins,
        count=count[used],
        cover=np.clip(np.rint(100 * total / bin_ns), 1, 100).astype(np.int64),
        late=sums((bars.flags & LATE) != 0).astype(np.int64),
        shares=np.rint(100 * spent / np.maximum(total, 1)[:, None]).astype(np.int64),
    )


def _steps(scene: Scene, look: Look) -> _OfRanks:
    inside = scene.steps.inside(look.t0, look.t1, look.ranks)
    steps = scene.steps.at(inside if len(inside) <= MAX_STEPS else [])
    columns = {name: getattr(steps, name) for name in ("start", "last_ready", "end")}
    return look.split(steps.rank, step=steps.number, **columns)


def _ruler(scene: Scene, look: Look) -> dict[str, Any]:
    """Return steps for the ruler, of the rank that has most, thinned out to one every 8 px."""
    steps = scene.steps.at(scene.steps.inside(look.t0, look.t1, look.ranks))
    if not len(steps):
        return {"step": [], "start": [], "every": 1}
    steps = steps.at(steps.of_rank(int(np.bincount(steps.rank).argmax())))
    rounds = (power * one for power in (10**k for k in count()) for one in (1, 2, 5))
    every = next(one for one in rounds if len(steps) / one <= look.width / 8)
    steps = steps.at(steps.number % every == 0)
    return {"step": steps.number.tolist(), "start": steps.start.tolist(), "every": every}


def _exposed(scene: Scene, look: Look) -> _OfRanks:
    """Return stretches: those that are wide enough, and of bins which share of them, in percent.

    Many that are narrower than a bin would else look as if they filled it.
    """
    spans = scene.exposed.at(scene.exposed.inside(look.t0, look.t1, look.ranks))
    start, end = np.maximum(spans.start, look.t0), np.minimum(spans.end, look.t1)
    spans, bin_ns = replace(spans, start=start, end=end), (look.t1 - look.t0) / look.bins
    is_wide = end - start >= bin_ns
    narrow, wide = spans.at(~is_wide), spans.at(is_wide)
    cell = narrow.rank * look.bins + look.bin_of(narrow.start, narrow.end, look.bins)
    covered = np.bincount(cell, narrow.end - narrow.start) / bin_ns
    used = np.flatnonzero(covered >= _LEAST_SHARE)
    share = np.rint(100 * np.minimum(covered[used], 1)).astype(np.int64)
    ends = (look.t0 + ((used % look.bins + i) * bin_ns).astype(np.int64) for i in (0, 1))
    merged = Spans(used // look.bins, share, *ends)
    every = replace(wide, row=np.full(len(wide), 100)).joined(merged)
    return look.split(every.rank, start=every.start, end=every.end, share=every.row)


def _listed(look: Look, found: Iterable[tuple[int, dict[str, Any]]]) -> list[list[dict[str, Any]]]:
    """Return the first ``MAX_MARKS`` that each rank has; ``found``: each with its rank."""
    of_ranks: dict[int, list[dict[str, Any]]] = {rank: [] for rank in look.ranks}
    for rank, one in found:
        if rank in of_ranks and len(of_ranks[rank]) < MAX_MARKS:
            of_ranks[rank].append(one)
    return [*of_ranks.values()]


def _marks(scene: Scene, look: Look) -> Iterator[tuple[int, dict[str, Any]]]:
    for rank, at, one in scene.anomalies:
        if look.t0 <= at <= look.t1:
            yield rank, {"at": at, "step": one.step, "title": one.kind, "text": one.message}


def _hangs(scene: Scene, look: Look) -> Iterator[tuple[int, dict[str, Any]]]:
    for hang in scene.hangs:
        one, start = hang.record, hang.start - scene.origin
        end = None if hang.end is None else hang.end - scene.origin
        if start > look.t1 or (end is not None and end < look.t0):
            continue
        told = {"start": start, "end": end, "text": f"{one.sentence}; {hang.outcome}"}
        for rank, number in enumerate(scene.numbers):
            title = f"hang, step {one.step}: rank {number}"
            if number in one.ranks:
                yield rank, {**told, "waits": False, "title": f"{title} is waited for"}
            if number in one.waiting:
                yield rank, {**told, "waits": True, "title": f"{title} waits"}


def _others(scene: Scene, look: Look) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the collectives that belong to no bucket, the longest first."""
    others = scene.others.at(scene.others.inside(look.t0, look.t1, look.ranks))
    others = others.at(np.argsort(others.start - others.end, kind="stable"))
    columns = (others.rank, others.row, others.start, others.end)
    for rank, row, start, end in zip(*(column.tolist() for column in columns), strict=True):
        one, of = scene.calls[row]
        took = "its end is not known"
        if one.done_ns is not None:
            took = f"in flight for {time_text(one.done_ns - one.issued_ns)}"
        sent = "payload unknown" if one.wire_bytes is None else f"{size(one.wire_bytes)} of payload"
        where = f"issued at {one.where or 'an unknown line'} on {one.thread}"
        title = f"{one.name}, step {of.step} of {of.model}, rank {scene.numbers[rank]}"
        text = f"{sent}, {took}; {where}{', by DDP itself' if one.of_ddp else ''}"
        span = {"lane": scene.others_lane, "start": start, "end": end}
        yield rank, {**span, "of_ddp": one.of_ddp, "title": title, "text": text}


def collectives(scene: Scene, bars: Bars, pieces: Pieces) -> list[dict[str, Any]]:
    """Return the collectives in which another rank waited for the last one, where that is known.

    ``at``, ``lane``: when ``last`` began, and its row; ``at`` is ``None`` if that is not among
    ``bars``.  ``waiting``: rank, row, start and end of each that waited.  Times are ns since the
    origin.
    """
    waits = pieces.at(pieces.kind == _WAIT)
    of, last = waits.of, waits.last
    # The k-th wait of a bucket is in the same collective on all ranks.
    which = np.arange(len(of)) - np.searchsorted(of, of)
    numbers = np.array(scene.numbers)
    columns = (
        bars.step[of], bars.bucket[of], which, numbers[last], numbers[bars.rank[of]],
        bars.lane[of], waits.start, waits.end,
    )  # fmt: skip
    found: dict[tuple[int, ...], dict[str, Any]] = {}
    for *key, rank, lane, start, end in zip(*(c[last >= 0].tolist() for c in columns), strict=True):
        step, bucket, _, last_rank = key
        begun = {"step": step, "bucket": bucket, "last": last_rank, "at": None, "lane": 0}
        one = found.setdefault(tuple(key), {**begun, "waiting": []})
        if rank == last_rank:
            one.update(at=start, lane=lane)
        elif end > start:
            one["waiting"].append({"rank": rank, "lane": lane, "start": start, "at": end})
    return [one for one in found.values() if one["waiting"]]
