"""The steps of the whole job, at its hub, and what ``hooktrace top`` draws of them.

    Part of each node below --take--> StepTable --newest--> JobStepRecord
                                      lines     --snapshot--> JobSnapshot, of bounded size

What comes of a step after its record still counts in the step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import nsmallest
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from ...records import JobStepRecord, StepSpread
from ...records.last_used import Bounded
from .gatherer import Model, Part, RankLine, StepTable, decode_lines, decode_part, interval_s

T = TypeVar("T")

KEPT_STEPS = 512
"""Of each model."""

WAIT_S = 10.0
"""How long ranks that have not told are waited for, and twice the interval at which nodes tell."""

_SHOWN_STEPS = 64
MOST_RANKS = 256
"""Of a larger job those that come latest."""

_LONG_S = 30.0
"""Ranks whose last news are older by that come before the others."""

_TOGETHER = 100
"""Lines that are looked at before other threads get a turn."""


class RankRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One rank: its last ``line``, which is ``age_s`` old.

    ``arrival_delay_ns``: how long after the first rank its last bucket was ready, as a mean of the
    last steps of which that is known, to within twice the line's uncertainty.
    """

    line: RankLine
    age_s: float
    arrival_delay_ns: int | None


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


class JobSteps:
    """Of the hub; used in the channel's thread only.  ``clock``: s, never goes back."""

    def __init__(self, world_size: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._world_size = world_size
        self._clock = clock
        self._table = StepTable(KEPT_STEPS)
        self._since: Bounded[tuple[Model, int], float] = Bounded(16 * KEPT_STEPS)
        """When the first rank told of a step."""
        self._recorded: Bounded[Model, int] = Bounded()
        self._told: dict[int, tuple[float, Part]] = {}

    def take(self, sender: int, payload: bytes) -> None:
        """Take a node's message.  Raises ``msgspec.DecodeError`` where it is none."""
        part, now = decode_part(payload), self._clock()
        self._told[sender] = now, Part([], part.lines.copy(), part.lost)
        for model, steps in part.steps:
            for step in steps:
                if self._table.add(model, step):
                    self._since[model, step.step] = now

    def newest(self) -> list[JobStepRecord]:
        """Return the newest step of each model that is new, and whole or waited for long enough."""
        size = self._world_size
        since = self._clock() - WAIT_S - 2 * interval_s(size)
        found = []
        for model, steps in self._table.items():
            recorded = self._recorded.get(model, -1)
            new = [spread for spread in steps.values() if spread.step > recorded]
            for newer, spread in enumerate(sorted(new, key=lambda spread: -spread.step)):
                is_old = self._since.get((model, spread.step), 0.0) <= since
                if spread.ranks >= size or is_old or newer > KEPT_STEPS // 2:
                    self._recorded[model] = spread.step
                    name, hook = model
                    found.append(
                        JobStepRecord(model=name, hook=hook, world_size=size, spread=spread)
                    )
                    break
        return found

    def snapshot(self, wanted: str = "", hangs: tuple[str, ...] = ()) -> JobSnapshot:
        """Return the last steps and the ranks, of a model or of the one that was heard of last."""
        known = dict(self._table)
        own = [model for model in known if wanted in ("", model[0])]
        model, hook = own[-1] if own else (wanted, "")
        steps = known.get((model, hook), {})
        rows, told_by = rows_of(self._lines(model), steps)
        return JobSnapshot(
            model,
            hook,
            tuple(dict.fromkeys(name for name, _ in known)),
            self._world_size,
            told_by,
            tuple(sorted(steps.values(), key=lambda s: s.step)[-_SHOWN_STEPS:]),
            rows,
            sum(part.lost for _, part in self._told.values()),
            hangs,
        )

    def _lines(self, model: str) -> Iterator[tuple[float, RankLine]]:
        now = self._clock()
        for told_s, part in giving_way(self._told.values()):
            for line in decode_lines(part.lines):
                if line.model == model:
                    yield now - told_s, line


def rows_of(
    lines: Iterable[tuple[float, RankLine]], steps: Mapping[int, StepSpread]
) -> tuple[tuple[RankRow, ...], int]:
    """Return the rows to show, the latest first, and how many ranks there are.

    ``lines``: with their age, s.  Of a rank that has several, the one of the last step counts.
    """
    firsts = {
        s.step: s.arrival.least_ns for s in steps.values() if s.arrival and s.arrival.count > 1
    }
    newest: dict[int, RankRow] = {}
    for age_s, line in giving_way(lines):
        if line.rank not in newest or newest[line.rank].line.step < line.step:
            newest[line.rank] = _row(line, age_s, firsts)
    # Not a sort of all: that has the interpreter lock for some ms.
    return tuple(nsmallest(MOST_RANKS, giving_way(newest.values()), _lateness)), len(newest)


def _row(line: RankLine, age_s: float, firsts: Mapping[int, int]) -> RankRow:
    delays = [ns - firsts[step] for step, ns in line.arrivals if step in firsts]
    # Of 10,000 ranks the arrivals are too many to keep: the garbage collector looks at each tuple.
    line = replace(line, arrivals=())
    return RankRow(line, age_s, sum(delays) // len(delays) if delays else None)


def _lateness(row: RankRow) -> tuple[int, int, int]:
    """Sort those without news for long first, then by delay; without one they are last."""
    delay_ns = -1 if row.arrival_delay_ns is None else row.arrival_delay_ns
    return -int(row.age_s / _LONG_S), -delay_ns, row.line.rank


def giving_way(items: Iterable[T]) -> Iterator[T]:
    """Yield all, and let other threads have the interpreter lock now and then."""
    for number, item in enumerate(items, 1):
        yield item
        if number % _TOGETHER == 0:
            time.sleep(0.0001)
