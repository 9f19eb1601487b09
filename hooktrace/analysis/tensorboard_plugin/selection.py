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

from typing import Any

import numpy as np

from ..run import STAGE_NAMES, UNKNOWN, Bools, Ints
from ..run.intervals import union_of_groups
from ..run.scene import Scene
from ..run.spans import Bars, Spans
from ..run.waits import PIECES
from .words import counted, time_text

MAX_BUCKETS = 300
"""Rows of buckets in an answer; ``left`` tells how many are left out."""
_WIRE, _WAIT, _TRANSFER = PIECES.index("wire"), PIECES.index("wait"), len(PIECES)
_NAMES = (*STAGE_NAMES, "wire: wait", "wire: transfer")
_ORDER = (*range(_WIRE + 1), _WAIT, _TRANSFER, *range(_WIRE + 1, len(STAGE_NAMES)))
_BITS = 20

Row = dict[str, Any]


def selection(scene: Scene, t0: int, t1: int, ranks: list[int]) -> dict[str, Any]:
    """Return the numbers of some ranks, by their places, between ``t0`` and ``t1``.

    These are ns since the origin, and lengths are in ns; ``exposed`` of a row is a share, ``None``
    without exposed time.  ``row``: what a row is that is no stage.  Raises ``ValueError`` for an
    empty stretch.
    """
    if t1 <= t0:
        raise ValueError("t1 must be after t0")
    bars = scene.bars.at(scene.bars.inside(t0, t1, ranks))
    part = _Part(scene.exposed.at(scene.exposed.inside(t0, t1, ranks)), t0, t1)
    pieces = scene.pieces(bars)
    of_bars = Spans(bars.rank, _kinds(scene, bars), bars.start, bars.end)
    # Of a wire stage of which it is known, wait and transfer instead.
    is_split = (pieces.kind == _WIRE) & (pieces.waited != UNKNOWN)
    kind = np.where(is_split, _TRANSFER, pieces.kind)
    of_stages = Spans(bars.rank[pieces.of], kind, pieces.start, pieces.end)
    is_in = (bars.start >= t0) & (bars.start < t1)
    names = _names(scene, np.unique(of_bars.row[is_in]))
    shown = [*names.items()][:MAX_BUCKETS]
    stages = [part.row(_NAMES[k], of_stages, k, is_in[pieces.of]) for k in _ORDER]
    sharded, whole = ("collective", "unit", "begun"), ("bucket", "bucket", "ready")
    noun, row, begun = sharded if scene.is_sharded else whole
    count, steps = int(is_in.sum()), len(np.unique(bars.step[is_in]))
    reach_in = np.count_nonzero((bars.start < t0) & (bars.end > t0))
    reach_out = np.count_nonzero(is_in & (bars.end > t1))
    left, why = len(names) - len(shown), scene.waits.why_missing
    return {
        "t0": t0,
        "t1": t1,
        "exposed": part.exposed_ns,
        "stages": [one for one in stages if one["count"]],
        "buckets": [part.row(name, of_bars, kind, is_in) for kind, name in shown],
        "row": row,
        "title": f"{time_text(t1 - t0)} selected",
        "sentence": (
            f"{counted(count, noun)} {begun} in it "
            f"({counted(len(ranks), 'rank')}, {counted(steps, 'step')}), counted whole; "
            f"{reach_in:,} that reach in from before are not counted, {reach_out:,} reach out; "
            f"{time_text(part.exposed_ns)} exposed, all ranks together"
        ),
        "explained": (
            "busy: at least one is in flight, added up over the ranks. sum counts "
            f"{noun}s that overlap more than once and is no cost. exposed: share of the exposed "
            "time in which it is in flight; several are at once."
            + (f" Wire is not split into wait and transfer: {why}." if why else "")
        ),
        "left": f"and {counted(left, f'more {noun}')}" if left > 0 else "",
    }


def _kinds(scene: Scene, bars: Bars) -> Ints:
    """Return what each bar is: which unit, or its generation and number."""
    if scene.is_sharded:
        return bars.unit
    generation: Ints = bars.gather(track.buckets.generation for track in scene.tracks)
    return generation.astype(np.int64) << _BITS | bars.bucket


def _names(scene: Scene, kinds: Ints) -> dict[int, str]:
    """Return what each kind of bucket is called: its number, or which collective of which unit."""
    if scene.is_sharded:
        return {k: str(scene.units[k]) if k >= 0 else "not known" for k in kinds.tolist()}
    numbers = {k: f"bucket {k & ((1 << _BITS) - 1)}" for k in kinds.tolist()}
    if len(np.unique(kinds >> _BITS)) < 2:
        return numbers
    return {k: f"{name}, generation {k >> _BITS}" for k, name in numbers.items()}


class _Part:
    """A stretch, what of it is exposed, and how many ns that are over all ranks."""

    def __init__(self, exposed: Spans, t0: int, t1: int) -> None:
        self._ends = t0, t1
        self._exposed = self._cut(exposed.rank, exposed.start, exposed.end)
        self.exposed_ns = _union(*self._exposed)

    def row(self, name: str, spans: Spans, kind: int, is_in: Bools) -> Row:
        """Return the numbers of one kind, which ``spans`` have as their rows."""
        is_own = spans.row == kind
        own = spans.at(is_own & is_in)
        length = own.end - own.start
        if not len(length):
            return {"name": name, "count": 0}
        return {
            "name": name,
            "count": len(length),
            "sum": int(length.sum()),
            "busy": _union(own.rank, own.start, own.end),
            "mean": float(length.mean()),  # not the median: whoever is last waits for nobody
            "p95": float(np.quantile(length, 0.95)),
            "low": int(length.min()),
            "high": int(length.max()),
            "exposed": self._share(spans.at(is_own)) if self.exposed_ns else None,
        }

    def _share(self, own: Spans) -> float:
        """Return the share of the exposed time in which one of the stretches was under way."""
        inside = self._cut(own.rank, own.start, own.end)
        both = map(np.concatenate, zip(inside, self._exposed, strict=True))
        return (_union(*inside) + self.exposed_ns - _union(*both)) / self.exposed_ns

    def _cut(self, rank: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
        return rank, start.clip(*self._ends), end.clip(*self._ends)


def _union(rank: Ints, start: Ints, end: Ints) -> int:
    """Return the union of each rank's stretches, added up over the ranks, ns."""
    return int(union_of_groups(rank, start, end, int(rank.max(initial=-1)) + 1).sum())
