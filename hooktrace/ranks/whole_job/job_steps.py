"""The steps of a job on their way to its hub, put together at each node, and there.

    own steps, messages of children --add--> StepTable, lines --message--> Part, one a message
    at the hub: Part of each node below --take--> StepTable --newest--> JobStepRecord
                                                  lines     --snapshot--> JobSnapshot, for top

What comes of a step after its record still counts in the step.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import nsmallest
from math import ceil
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from ...records import JobStepRecord, StepSpread
from ...records.job import merged
from ...records.last_used import Bounded, LastUsed
from ..channel.messages import encode

T = TypeVar("T")

Model = tuple[str, str]
"""Its name and its hook's."""

MOST_STEPS = 256
"""Of a model in one message; of more, the oldest are lost."""
_MODELS = 16
_LINES = 4096
"""Ranks times models of one host."""

_RANKS_A_SECOND, _RANKS_A_STEP = 1000, 2500
"""At most so many ranks tell in a second, and of one step.

At two steps a second the hub of 10,000 ranks spends some 3 % of a core.  A message has no room for
more than ``MOST_STEPS``; those that are lost are counted.
"""

KEPT_STEPS = 512
"""Of each model, at the hub."""

WAIT_S = 10.0
"""How long ranks that have not told are waited for, and twice the interval at which nodes tell."""

_SHOWN_STEPS = 64
MOST_RANKS = 256
"""Of a larger job those that come latest."""

_LONG_S = 30.0
"""Ranks whose last news are older by that come before the others."""

_TOGETHER = 100
"""Lines that are looked at before other threads get a turn."""


def interval_s(world_size: int) -> int:
    """Return how often a node tells."""
    return max(1, ceil(world_size / _RANKS_A_SECOND))


def told_every(world_size: int) -> int:
    """Return of which steps ranks tell: those whose number it divides.

    >>> [(interval_s(size), told_every(size)) for size in (8, 2500, 10_000)]
    [(1, 1), (3, 1), (10, 4)]
    """
    more = ceil(world_size / _RANKS_A_STEP) - 1
    return 1 << max(0, more.bit_length())


class RankLine(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where one rank is with one model.

    ``period_ns``, ``exposed_ns``: means of its last steps that were timed.  ``arrivals``: last
    steps and when it came, in rank 0's clock, to within ``uncertainty_ns``.  ``anomalies``: how
    many it saw; ``anomaly``: the last one, in words.
    """

    rank: int
    host: str
    model: str
    step: int
    period_ns: int | None
    exposed_ns: int | None
    arrivals: tuple[tuple[int, int], ...]
    uncertainty_ns: int
    anomalies: int = 0
    anomaly: str = ""


class Part(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a node and all below it have to tell since it last did.

    ``lines``: of all its ranks, a list of ``RankLine`` which the hub keeps as it comes.
    ``lost``: steps that had no room, so far.
    """

    steps: list[tuple[Model, list[StepSpread]]]
    lines: msgspec.Raw
    lost: int = 0


decode_part = msgspec.msgpack.Decoder(Part).decode
decode_lines = msgspec.msgpack.Decoder(list[RankLine]).decode


class StepTable(LastUsed[Model, dict[int, StepSpread]]):
    """The last steps of each model, at most so many; ``lost`` counts those without room.

    The model that was seen last is the last one.
    """

    def __init__(self, most_steps: int) -> None:
        super().__init__(dict, _MODELS)
        self._most_steps = most_steps
        self.lost = 0

    def add(self, model: Model, part: StepSpread) -> bool:
        """Take a part of a step; returns whether it is a new one that is kept."""
        steps = self.of(model)
        known = steps.get(part.step)
        if known is not None:
            steps[part.step] = merged(known, part)
            return False
        if len(steps) >= self._most_steps:
            oldest = next(iter(steps))
            self.lost += 1
            if part.step < oldest:
                return False
            del steps[oldest]
        steps[part.step] = part
        return True


class Gatherer:
    """What came to one node since its last message, and each rank's last line; for any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._table = StepTable(MOST_STEPS)
        self._lines: Bounded[tuple[int, str], RankLine] = Bounded(_LINES)
        self._lost_below: dict[int, int] = {}

    def add(self, steps: Iterable[tuple[Model, StepSpread]], lines: Iterable[RankLine]) -> None:
        """Take parts of steps, and where their ranks are."""
        with self._lock:
            for model, part in steps:
                self._table.add(model, part)
            for line in lines:
                self._lines[line.rank, line.model] = line

    def take(self, child: int, payload: bytes) -> None:
        """Take a child's message.  Raises ``msgspec.DecodeError`` where it is none."""
        part = decode_part(payload)
        steps = ((model, step) for model, of_model in part.steps for step in of_model)
        self.add(steps, decode_lines(part.lines))
        self._lost_below[child] = part.lost

    def message(self) -> bytes | None:
        """Return what came since the last message; ``None`` where that is nothing."""
        with self._lock:
            if not self._table:
                return None
            steps = [(model, list(of.values())) for model, of in self._table.items()]
            self._table.clear()
            lines = msgspec.Raw(encode(list(self._lines.values())))
            return encode(Part(steps, lines, self._table.lost + sum(self._lost_below.values())))


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
                    told = JobStepRecord(model=name, hook=hook, world_size=size, spread=spread)
                    found.append(told)
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
