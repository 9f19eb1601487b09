"""A stretch of time in numbers: of each stage and bucket how many, how long, and how much exposed.

    Scene, t0, t1 --selection--> rows of stages and of buckets, and what they are of

**What lies partly inside.**  A bucket counts if it was ready in [t0, t1), whole and with all of its
stages, wherever they end: so its lengths are those that it had, and stretches that adjoin add up.
Those that were ready before and reach into the stretch are not in it; ``reach_in`` and
``reach_out`` tell how many there are of either.

**Sums are no cost.**  Buckets overlap in time, so ``sum`` counts an instant as often as a bucket is
under way in it.  ``busy`` counts it once: with at least one under way, added up over the ranks.

**Exposed.**  Of the exposed time within the stretch, the share in which the stage or bucket was
under way on that rank, whenever it was ready.  Several are under way at once: shares do not add up
to 1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..run import STAGE_NAMES, UNKNOWN, Ints
from ..run.intervals import union_of_groups
from .scene import RankScene, Scene

MAX_BUCKETS = 300
"""Rows of buckets in an answer; ``more_buckets`` tells how many are left out."""
_HISTOGRAM = 16
_WIRE = STAGE_NAMES.index("wire")
_NAMES = (*STAGE_NAMES, "wire: wait", "wire: transfer")
_WAIT, _TRANSFER = len(STAGE_NAMES), len(STAGE_NAMES) + 1
_ORDER = (0, 1, 2, 3, _WAIT, _TRANSFER, *range(4, len(STAGE_NAMES)))
_BITS = 20


class _Pieces(NamedTuple):
    """Intervals of all ranks, ns since the origin: of which kind, on which rank, and if counted."""

    kind: Ints
    rank: Ints
    start: Ints
    end: Ints
    counts: npt.NDArray[np.bool_]


def selection(scene: Scene, t0: int, t1: int) -> dict[str, Any]:
    """Return the numbers of the ranks of ``scene`` between ``t0`` and ``t1``, ns since the origin.

    Lengths in ns; ``exposed`` of a row is a share, ``None`` without exposed time.  Raises
    ``ValueError`` for an empty stretch.
    """
    if t1 <= t0:
        raise ValueError("t1 must be after t0")
    is_sharded = scene.is_sharded
    buckets = _joined([_buckets(r, i, (t0, t1), is_sharded) for i, r in enumerate(scene.ranks)])
    stages = _joined([_stages(r, i, t0, t1) for i, r in enumerate(scene.ranks)])
    exposed = _exposed(scene, t0, t1)
    total = _union(exposed.rank, exposed.start, exposed.end)
    kinds = np.unique(buckets.kind[buckets.counts])
    of_buckets = _rows(buckets, exposed, total, kinds[:MAX_BUCKETS], (t0, t1))
    of_stages = _rows(stages, exposed, total, np.array(_ORDER), (t0, t1))
    names = _names(scene, kinds)
    inside = buckets.counts
    return {
        "t0": t0,
        "t1": t1,
        "ranks": len(scene.ranks),
        "steps": _steps(scene, t0, t1),
        "buckets_counted": int(inside.sum()),
        "reach_in": int((~inside & (buckets.start < t0) & (buckets.end > t0)).sum()),
        "reach_out": int((inside & (buckets.end > t1)).sum()),
        "exposed": total,
        "stages": [{"name": _NAMES[k], **row} for k, row in of_stages if row["count"]],
        "buckets": [{"name": names[k], **row} for k, row in of_buckets],
        "more_buckets": max(0, len(kinds) - MAX_BUCKETS),
        "wire_not_split": scene.waits.why_missing or "",
    }


def _names(scene: Scene, kinds: Ints) -> dict[int, str]:
    """Return what each kind of bucket is called: its number, or which collective of which unit."""
    if scene.is_sharded:
        return {k: str(scene.units[k]) if k >= 0 else "not known" for k in kinds.tolist()}
    numbers = {k: f"bucket {k & ((1 << _BITS) - 1)}" for k in kinds.tolist()}
    if len(np.unique(kinds >> _BITS)) < 2:
        return numbers
    return {k: f"{name}, generation {k >> _BITS}" for k, name in numbers.items()}


def _buckets(rank: RankScene, place: int, ends: tuple[int, int], is_sharded: bool) -> _Pieces:
    t0, t1 = ends
    at = rank.buckets.inside(t0, t1)
    start, end = rank.buckets.start[at], rank.buckets.end[at]
    generation = rank.track.buckets.generation[rank.buckets.row[at]].astype(np.int64)
    kind = rank.unit[at] if is_sharded else generation << _BITS | rank.bucket[at]
    return _Pieces(kind, np.full(len(at), place), start, end, (start >= t0) & (start < t1))


def _stages(rank: RankScene, place: int, t0: int, t1: int) -> _Pieces:
    """Return a rank's stages; of a wire stage of which it is known, wait and transfer instead."""
    # A stage may end after its bucket's end: on a device, or where clocks of threads differ.
    at = rank.buckets.inside(t0, t1)
    index, of = rank.track.stages_of(rank.buckets.row[at])
    stages, ready = rank.track.stages, rank.buckets.start[at][of]
    kind = stages.name[index].astype(np.int64)
    start = ready + stages.start[index]
    end: Ints = np.maximum(ready + stages.end[index], start)
    split = (kind == _WIRE) & (rank.waited[index] != UNKNOWN)
    turn = start + np.minimum(np.maximum(rank.waited[index], 0), end - start)
    counts = (ready >= t0) & (ready < t1)
    kind = np.concatenate((np.where(split, _WAIT, kind), np.full(int(split.sum()), _TRANSFER)))
    return _Pieces(
        kind,
        np.full(len(kind), place),
        np.concatenate((start, turn[split])),
        np.concatenate((np.where(split, turn, end), end[split])),
        np.concatenate((counts, counts[split])),
    )


def _exposed(scene: Scene, t0: int, t1: int) -> _Pieces:
    """Return the exposed time of each rank, cut to the stretch."""
    found = []
    for place, rank in enumerate(scene.ranks):
        start = np.maximum(rank.exposed_at.start, t0)
        end = np.minimum(rank.exposed_at.end, t1)
        at = np.flatnonzero(end > start)
        same = np.full(len(at), place)
        found.append(_Pieces(same * 0, same, start[at], end[at], same >= 0))
    return _joined(found)


def _joined(pieces: list[_Pieces]) -> _Pieces:
    if not pieces:
        nothing = np.zeros(0, np.int64)
        return _Pieces(nothing, nothing, nothing, nothing, nothing >= 0)
    return _Pieces(*(np.concatenate(column) for column in zip(*pieces, strict=True)))


def _steps(scene: Scene, t0: int, t1: int) -> int:
    """Return how many steps have a bucket that counts."""
    numbers = [r.step[(r.buckets.start >= t0) & (r.buckets.start < t1)] for r in scene.ranks]
    return len(np.unique(np.concatenate(numbers))) if numbers else 0


def _rows(
    pieces: _Pieces, exposed: _Pieces, total: int, kinds: Ints, range_ns: tuple[int, int]
) -> list[tuple[int, dict[str, Any]]]:
    """Return kind and row of each of ``kinds``."""
    found = []
    for kind in kinds.tolist():
        own = _Pieces(*(column[pieces.kind == kind] for column in pieces))
        found.append((kind, _row(own, exposed, total, range_ns)))
    return found


def _row(own: _Pieces, exposed: _Pieces, total: int, range_ns: tuple[int, int]) -> dict[str, Any]:
    length = (own.end - own.start)[own.counts]
    if not len(length):
        return {"count": 0}
    low, high = int(length.min()), int(length.max())
    histogram = np.histogram(length, _HISTOGRAM, (low, max(high, low + 1)))[0]
    counted = own.rank[own.counts], own.start[own.counts], own.end[own.counts]
    return {
        "count": len(length),
        "sum": int(length.sum()),
        "busy": _union(*counted),
        "mean": float(length.mean()),  # not the median: whoever is last waits for nobody
        "p95": float(np.quantile(length, 0.95)),
        "low": low,
        "high": high,
        "histogram": histogram.tolist(),
        "exposed": _common(own, exposed, total, range_ns) / total if total else None,
    }


def _union(rank: Ints, start: Ints, end: Ints) -> int:
    """Return the union of each rank's intervals, added up over the ranks, ns."""
    return int(union_of_groups(rank, start, end, int(rank.max(initial=-1)) + 1).sum())


def _common(own: _Pieces, exposed: _Pieces, total: int, range_ns: tuple[int, int]) -> int:
    """Return the exposed time in which one of the intervals was under way, ns, over all ranks."""
    start, end = np.clip(own.start, *range_ns), np.clip(own.end, *range_ns)
    both = (
        np.concatenate((own.rank, exposed.rank)),
        np.concatenate((start, exposed.start)),
        np.concatenate((end, exposed.end)),
    )
    return _union(own.rank, start, end) + total - _union(*both)
