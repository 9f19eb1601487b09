"""What a node tells its parent of steps: its own part and those of its children.

own steps, messages of children --add--> StepTable, lines --message--> Part, one a message
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from math import ceil

import msgspec

from ...records import StepSpread
from ...records.job import merged
from ...records.last_used import Bounded, LastUsed

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


encode = msgspec.msgpack.Encoder().encode
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
