"""Stages of single bars as pieces of one kind each, and who waited for whom in them.

    RankScene, rows of its buckets --pieces_of--> wait and transfer of a wire stage apart
    the same of all ranks --collectives--> what an arrow leads from and to

Stages are cut to their bucket, as in the Perfetto file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ..run import STAGE_NAMES, Ints
from .scene import KINDS, RankScene

_WIRE, _WAIT = STAGE_NAMES.index("wire"), KINDS.index("wait")


class Pieces(NamedTuple):
    """``counts``: of each bucket; the others of each piece, times in ns since the origin."""

    counts: Ints
    kind: Ints
    start: Ints
    end: Ints


class _Stages(NamedTuple):
    """Of each stage: its row, the place of its bucket, when it was, and until when it waited."""

    row: Ints
    bucket: Ints
    start: Ints
    turn: Ints
    end: Ints


def _stages(rank: RankScene, at: Ints) -> _Stages:
    stages = rank.track.stages
    row, bucket = rank.track.stages_of(rank.buckets.row[at])
    begun, done = rank.buckets.start[at][bucket], rank.buckets.end[at][bucket]
    start = np.clip(begun + stages.start[row], begun, done)
    end = np.clip(begun + stages.end[row], start, done)
    waited = np.where(stages.name[row] == _WIRE, np.maximum(rank.waited[row], 0), 0)
    return _Stages(row, bucket, start, np.minimum(end, start + waited), end)


def pieces_of(rank: RankScene, at: Ints) -> Pieces:
    """Return the pieces of some of a rank's buckets, in the order of their stages."""
    found = _stages(rank, at)
    parts = 1 + (found.turn > found.start)
    kind = np.repeat(rank.track.stages.name[found.row].astype(np.int64), parts)
    start, end = np.repeat(found.start, parts), np.repeat(found.end, parts)
    last = np.cumsum(parts) - 1
    split = parts > 1
    kind[last[split] - 1] = _WAIT
    end[last[split] - 1] = start[last[split]] = found.turn[split]
    counts: Ints = np.bincount(found.bucket, weights=parts, minlength=len(at)).astype(np.int64)
    return Pieces(counts, kind, start, end)


def collectives(bars: Iterable[tuple[RankScene, Ints]]) -> list[dict[str, Any]]:
    """Return the collectives in which another rank waited for the last one, where that is known.

    ``bars``: ranks and rows of their buckets.  ``at``, ``lane``: when ``last`` began, and its row;
    ``at`` is ``None`` if that is not among ``bars``.  ``waiting``: rank, row, start and end of each
    that waited.  Times are ns since the origin.
    """
    found: dict[tuple[int, ...], dict[str, Any]] = {}
    for rank, at in bars:
        for step, bucket, turn, last, lane, start, end in _wires(rank, at):
            key = step, bucket, turn, last
            begun = {"step": step, "bucket": bucket, "last": last, "at": None, "lane": 0}
            one = found.setdefault(key, {**begun, "waiting": []})
            if rank.rank == last:
                one.update(at=start, lane=lane)
            elif end > start:
                one["waiting"].append({"rank": rank.rank, "lane": lane, "start": start, "at": end})
    return [one for one in found.values() if one["waiting"]]


def _wires(rank: RankScene, at: Ints) -> Iterator[tuple[int, ...]]:
    """Yield step, bucket, which wire stage of its bucket, the last rank, row, start and wait's end.

    The k-th wire stage of a bucket is the same collective on all ranks.
    """
    found = _stages(rank, at)
    is_wire = rank.track.stages.name[found.row] == _WIRE
    row, bucket, start, turn, _ = (column[is_wire] for column in found)
    which = np.arange(len(bucket)) - np.searchsorted(bucket, bucket)
    own = at[bucket]
    last = rank.waited_for[row]
    columns = rank.step[own], rank.bucket[own], which, last, rank.lane[own], start, turn
    yield from zip(*(column[last >= 0].tolist() for column in columns), strict=True)
