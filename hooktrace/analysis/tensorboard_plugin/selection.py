"""A stretch of time in numbers: of each stage and bucket how many, how long, and how much exposed.

    Scene, t0, t1 --selection--> rows of stages and of buckets, and sentences

**What lies partly inside.**  A bucket counts if it was ready in [t0, t1), whole and with all of its
stages, wherever they end: so its lengths are those that it had, and stretches that adjoin add up.
Those that were ready before and reach into the stretch are not in it; the sentence tells how many
reach in, and out.

**Sums are no cost.**  Buckets overlap in time, so ``sum`` counts an instant as often as a bucket is
under way in it.  ``busy`` counts it once: with at least one under way, added up over the ranks.

**Exposed.**  Of the exposed time within the stretch, the share in which the stage or bucket was
under way on that rank, whenever it was ready.  Several are under way at once: shares do not add up
to 1.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from ..run import STAGE_NAMES, UNKNOWN, Bools, Ints
from ..run.intervals import union_of_groups
from ..run.waits import PIECES, pieces_of
from .scene import RankScene, Scene
from .words import counted, time_text

MAX_BUCKETS = 300
"""Rows of buckets in an answer; ``left`` tells how many are left out."""
_WIRE = STAGE_NAMES.index("wire")
_NAMES = (*STAGE_NAMES, "wire: wait", "wire: transfer")
_WAIT, _TRANSFER = PIECES.index("wait"), len(PIECES)
_ORDER = (0, 1, 2, 3, _WAIT, _TRANSFER, *range(4, len(STAGE_NAMES)))
_BITS = 20

Row = dict[str, Any]


class _Pieces(NamedTuple):
    """Intervals of all ranks, ns since the origin: of which kind, on which rank, and if counted."""

    kind: Ints
    rank: Ints
    start: Ints
    end: Ints
    counts: Bools

    def at(self, rows: Bools) -> _Pieces:
        """Return some of them."""
        found: list[Any] = [column[rows] for column in self]
        return _Pieces(*found)

    def union(self) -> int:
        """Return the union of each rank's intervals, added up over the ranks, ns."""
        ranks = int(self.rank.max(initial=-1)) + 1
        return int(union_of_groups(self.rank, self.start, self.end, ranks).sum())


def _joined(pieces: Iterable[_Pieces]) -> _Pieces:
    nothing = np.zeros(0, np.int64)
    empty = _Pieces(nothing, nothing, nothing, nothing, nothing >= 0)
    return _Pieces(*(np.concatenate(column) for column in zip(empty, *pieces, strict=True)))


def selection(scene: Scene, t0: int, t1: int) -> dict[str, Any]:
    """Return the numbers of the ranks of ``scene`` between ``t0`` and ``t1``, ns since the origin.

    Lengths in ns; ``exposed`` of a row is a share, ``None`` without exposed time.  ``row``: what a
    row is that is no stage.  Raises ``ValueError`` for an empty stretch.
    """
    if t1 <= t0:
        raise ValueError("t1 must be after t0")
    ranks = [*enumerate(scene.ranks)]
    exposed = _joined(_exposed(r, i, t0, t1) for i, r in ranks)
    parts = _Parts(exposed, exposed.union(), t0, t1)
    buckets = _joined(_buckets(r, i, parts, scene.is_sharded) for i, r in ranks)
    kinds = np.unique(buckets.kind[buckets.counts])
    names = _names(scene, kinds)
    stages = _joined(_stages(r, i, parts) for i, r in ranks)
    of_stages = [parts.row(_NAMES[k], stages.at(stages.kind == k)) for k in _ORDER]
    of_buckets = [
        parts.row(names[k], buckets.at(buckets.kind == k)) for k in kinds[:MAX_BUCKETS].tolist()
    ]
    found = {
        "t0": t0,
        "t1": t1,
        "exposed": parts.exposed_ns,
        "stages": [row for row in of_stages if row["count"]],
        "buckets": of_buckets,
    }
    return {**found, **_words(scene, found, buckets, max(0, len(kinds) - MAX_BUCKETS))}


def _words(scene: Scene, found: Row, buckets: _Pieces, left: int) -> dict[str, str]:
    """Return what is said of it all."""
    sharded, whole = ("collective", "unit", "begun"), ("bucket", "bucket", "ready")
    noun, row, begun = sharded if scene.is_sharded else whole
    t0, t1, inside = found["t0"], found["t1"], buckets.counts
    steps = [r.step[(r.buckets.start >= t0) & (r.buckets.start < t1)] for r in scene.ranks]
    step_count = len(np.unique(np.concatenate([[], *steps])))
    reach_in = int((~inside & (buckets.start < t0) & (buckets.end > t0)).sum())
    reach_out = int((inside & (buckets.end > t1)).sum())
    why = scene.waits.why_missing
    return {
        "row": row,
        "title": f"{time_text(t1 - t0)} selected",
        "sentence": (
            f"{counted(int(inside.sum()), noun)} {begun} in it "
            f"({counted(len(scene.ranks), 'rank')}, {counted(step_count, 'step')}), counted whole; "
            f"{reach_in:,} that reach in from before are not counted, {reach_out:,} reach out; "
            f"{time_text(found['exposed'])} exposed, all ranks together"
        ),
        "explained": (
            "busy: at least one is in flight, added up over the ranks. sum counts "
            f"{noun}s that overlap more than once and is no cost. exposed: share of the exposed "
            "time in which it is in flight; several are at once."
            + (f" Wire is not split into wait and transfer: {why}." if why else "")
        ),
        "left": f"and {counted(left, f'more {noun}')}" if left else "",
    }


def _names(scene: Scene, kinds: Ints) -> dict[int, str]:
    """Return what each kind of bucket is called: its number, or which collective of which unit."""
    if scene.is_sharded:
        return {k: str(scene.units[k]) if k >= 0 else "not known" for k in kinds.tolist()}
    numbers = {k: f"bucket {k & ((1 << _BITS) - 1)}" for k in kinds.tolist()}
    if len(np.unique(kinds >> _BITS)) < 2:
        return numbers
    return {k: f"{name}, generation {k >> _BITS}" for k, name in numbers.items()}


class _Parts(NamedTuple):
    """A stretch, what of it is exposed, and how many ns that are over all ranks."""

    exposed: _Pieces
    exposed_ns: int
    t0: int
    t1: int

    def has(self, ready: Ints) -> Bools:
        """Return what counts of what was ready then."""
        found: Bools = (ready >= self.t0) & (ready < self.t1)
        return found

    def row(self, name: str, own: _Pieces) -> Row:
        """Return the numbers of one kind."""
        counting = own.at(own.counts)
        length = counting.end - counting.start
        if not len(length):
            return {"name": name, "count": 0}
        return {
            "name": name,
            "count": len(length),
            "sum": int(length.sum()),
            "busy": counting.union(),
            "mean": float(length.mean()),  # not the median: whoever is last waits for nobody
            "p95": float(np.quantile(length, 0.95)),
            "low": int(length.min()),
            "high": int(length.max()),
            "exposed": self._share(own) if self.exposed_ns else None,
        }

    def _share(self, own: _Pieces) -> float:
        """Return the share of the exposed time in which one of the intervals was under way."""
        inside = own._replace(start=own.start.clip(*self[2:]), end=own.end.clip(*self[2:]))
        both = _joined((inside, self.exposed))
        return (inside.union() + self.exposed_ns - both.union()) / self.exposed_ns


def _buckets(rank: RankScene, place: int, parts: _Parts, is_sharded: bool) -> _Pieces:
    at = rank.buckets.inside(parts.t0, parts.t1)
    start, end = rank.buckets.start[at], rank.buckets.end[at]
    generation = rank.track.buckets.generation[rank.buckets.row[at]].astype(np.int64)
    kind = rank.unit[at] if is_sharded else generation << _BITS | rank.bucket[at]
    return _Pieces(kind, np.full(len(at), place), start, end, parts.has(start))


def _stages(rank: RankScene, place: int, parts: _Parts) -> _Pieces:
    """Return a rank's stages; of a wire stage of which it is known, wait and transfer instead."""
    # A stage may end after its bucket's end: on a device, or where clocks of threads differ.
    at = rank.buckets.inside(parts.t0, parts.t1)
    kind, of, row, start, end = pieces_of(rank.track, rank.buckets.row[at], rank.waited)
    ready = rank.buckets.start[at][of]
    kind = np.where((kind == _WIRE) & (rank.waited[row] != UNKNOWN), _TRANSFER, kind)
    return _Pieces(kind, np.full(len(of), place), ready + start, ready + end, parts.has(ready))


def _exposed(rank: RankScene, place: int, t0: int, t1: int) -> _Pieces:
    """Return a rank's exposed time, cut to the stretch."""
    start, end = np.maximum(rank.exposed_at.start, t0), np.minimum(rank.exposed_at.end, t1)
    same = np.full(len(start), place)
    return _Pieces(same, same, start, end, same >= 0).at(end > start)
