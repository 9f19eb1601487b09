"""Hangs as bars, and late ranks: on those that wait from when they did, and where for whom.

Hang, rows of a rank's buckets --hang_bars--> HangBar of each that the rank has a part in
Run, model --late_bars--> the ranks that the report calls late, and where others waited for each

A bar without an end is drawn to the end of the picture, and torn off there: nobody knows how long
it took.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..run import Hang, Ints, Run
from ..run.dense import settled_steps
from ..run.late import LateRank, late_calls, late_ranks, why_nobody
from ..run.order import is_order_known
from ..run.run import once

_LEAST_SHARE = 0.1
"""Of the run that an open bar has at its end, at least, so that it can be seen."""
_LEAST_NS = 1_000_000_000
"""The same of a run in which nothing else has happened."""


@dataclass(frozen=True, slots=True)
class HangBar:
    """A hang on one rank; times in ns since the origin, ``end`` is ``None`` where none is known.

    ``lane``: the row of the bucket that waits, ``None`` of all of the rank's: one that is waited
    for, or that waits at no bucket.
    """

    hang: Hang
    start: int
    end: int | None
    lane: int | None
    waits: bool

    def drawn(self, rank: int, t0: int) -> dict[str, Any]:
        """Return what the page draws and tells; times after ``t0``."""
        record = self.hang.record
        part = "waits" if self.waits else "is waited for"
        return {
            "start": self.start - t0,
            "end": None if self.end is None else self.end - t0,
            "lane": self.lane,
            "waits": self.waits,
            "step": record.step,
            "title": f"hang, step {record.step}: rank {rank} {part}",
            "text": f"{self.hang.record.sentence}; {self.hang.outcome}",
        }


def hang_bars(
    hangs: Sequence[Hang], rank: int, origin: int, lane_of: Callable[[int, int], int | None]
) -> list[HangBar]:
    """Return a rank's bars; ``lane_of``: the row of a step's bucket."""
    found = []
    for hang in hangs:
        record, start = hang.record, hang.start - origin
        end = None if hang.end is None else hang.end - origin
        if rank in record.ranks:
            found.append(HangBar(hang, start, end, None, waits=False))
        if rank in record.waiting:
            lane = lane_of(record.step, record.bucket) if record.bucket >= 0 else None
            found.append(HangBar(hang, start, end, lane, waits=True))
    return found


def lane_in(step: Ints, bucket: Ints, lane: Ints, most: int) -> Callable[[int, int], int | None]:
    """Return what tells the row of a step's bucket: its own, else the last one that it had.

    One that it never had is in the row of its number, below ``most``; without such, in none.
    """

    def lane_of(of_step: int, of_bucket: int) -> int | None:
        same = np.flatnonzero(bucket == of_bucket)
        at = same[step[same] == of_step]
        at = at if len(at) else same
        if len(at):
            return int(lane[at[-1]])
        return min(of_bucket, most - 1) if most else None

    return lane_of


def extent_with(hangs: Sequence[Hang], origin: int, extent: int, usual_step: float) -> int:
    """Return where the picture ends: an open bar has a part of it that can be seen."""
    ends = [one.end - origin for one in hangs if one.end is not None]
    least = max(int(2 * usual_step), int(_LEAST_SHARE * extent)) or _LEAST_NS
    ends += [one.start - origin + least for one in hangs if one.end is None]
    return max([extent, *ends])


@once
def late_bars(run: Run, model: str) -> tuple[list[tuple[LateRank, Ints]], str]:
    """Return the late ranks, the worst first, each with ``late_calls``; or why none is named."""
    if len(run.tracks) < 2:
        return [], ""
    arrays = settled_steps(run, model)
    if arrays is None or not len(arrays.steps):
        return [], "Not known: no step counts."
    arrays = arrays.sample
    late = late_ranks(arrays)
    if not late:
        why = why_nobody(is_order_known=is_order_known(arrays), is_sharded=arrays.is_sharded)
        return [], f"No rank is named: {why}."
    return list(zip(late, late_calls(arrays, late), strict=True)), ""
