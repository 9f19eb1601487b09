"""The job at one moment, of bounded size: what ``hooktrace top`` draws.

JobSteps --snapshot--> JobSnapshot --the channel's client--> commands/top
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import nsmallest
from math import ceil
from typing import TypeVar

import msgspec

from ...records import StepSpread
from .gatherer import RankLine, interval_s, told_every

T = TypeVar("T")

STEPS = 64
MOST_RANKS = 256
"""Of a larger job those that come latest."""

_DRAIN_S = 0.5
"""How old the steps may be that a rank tells of: its drain's usual interval."""

_TOGETHER = 100
"""Lines that are looked at before other threads get a turn."""


class RankRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One rank: its last ``line``, and what that says beside the others' lines.

    ``arrival_delay_ns``: how long after the first rank its last bucket was ready, in the last
    ``delay_steps`` steps of which that is known, to within twice the line's uncertainty.
    ``behind``: steps less than the foremost rank, but for those it may have made since it told.
    """

    line: RankLine
    behind: int
    age_s: float
    arrival_delay_ns: int | None
    delay_steps: int


class JobSnapshot(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The job's last steps of one model, and its ranks.

    ``steps``: the last ones, oldest first.  ``ranks``: the latest first, of ``told_by`` that told.
    ``lost``: steps that there was no room for.
    """

    model: str
    hook: str
    models: tuple[str, ...]
    world_size: int
    told_by: int
    steps: tuple[StepSpread, ...]
    ranks: tuple[RankRow, ...]
    lost: int = 0
    hangs: tuple[str, ...] = ()

    @property
    def interval_s(self) -> int:
        """How often a node tells."""
        return interval_s(self.world_size)

    @property
    def every(self) -> int:
        """Of which steps ranks tell: each so many."""
        return told_every(self.world_size)


Lines = Callable[[], Iterable[tuple[float, RankLine]]]
"""Makes all lines anew, with their age, s: of 10,000 ranks they are too many to have at once, since
the garbage collector would look at everything that the process has."""


def rows_of(lines: Lines, steps: Mapping[int, StepSpread]) -> tuple[tuple[RankRow, ...], int]:
    """Return the rows to show, the latest first, and how many ranks there are.

    Of a rank that has several lines, the one of the last step counts.
    """
    newest: dict[int, int] = {}
    front = 0, 0.0  # the last step that any rank has told, and how long ago the first one did, s
    for age_s, line in giving_way(lines()):
        if line.step >= newest.get(line.rank, line.step):
            newest[line.rank] = line.step
        front = max(front, (line.step, age_s))
    count = len(newest)
    firsts = {
        s.step: s.arrival.least_ns for s in steps.values() if s.arrival and s.arrival.count > 1
    }
    rows = (
        _row(line, age_s, front, firsts)
        for age_s, line in giving_way(lines())
        if newest.get(line.rank) == line.step and newest.pop(line.rank) is not None
    )
    # Not a sort of all: that has the interpreter lock for some ms.
    return tuple(nsmallest(MOST_RANKS, rows, _lateness)), count


def _row(
    line: RankLine, age_s: float, front: tuple[int, float], firsts: Mapping[int, int]
) -> RankRow:
    step, since_s = front
    untold = 0
    if line.period_ns and age_s > since_s - _DRAIN_S:
        untold = ceil((age_s - since_s + _DRAIN_S) * 1e9 / line.period_ns)
    delays = [ns - firsts[step] for step, ns in line.arrivals if step in firsts]
    delay_ns = sum(delays) // len(delays) if delays else None
    return RankRow(line, max(0, step - line.step - untold), age_s, delay_ns, len(delays))


def _lateness(row: RankRow) -> tuple[int, int, int]:
    """Sort those that are behind by whole steps first, then by delay; without one they are last."""
    return (
        -row.behind,
        -(-1 if row.arrival_delay_ns is None else row.arrival_delay_ns),
        row.line.rank,
    )


def giving_way(items: Iterable[T]) -> Iterator[T]:
    """Yield all, and let other threads have the interpreter lock now and then."""
    for number, item in enumerate(items, 1):
        yield item
        if number % _TOGETHER == 0:
            time.sleep(0.0001)
