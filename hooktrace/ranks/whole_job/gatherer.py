"""What a node tells its parent: its own part and those of its children, as one message.

own steps, messages of children --add--> StepTable, lines --message--> bytes
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ...records import StepSpread
from .messages import MOST_STEPS, ModelSteps, Part, RankLine, decode_lines, decode_part, encode
from .table import Model, StepTable

_LINES = 4096
"""Ranks times models of one host."""


class Gatherer:
    """Of one node; used in the channel's thread only.

    It keeps what came since the last message, and the last line of each rank.
    """

    def __init__(self) -> None:
        self._table = StepTable(MOST_STEPS)
        self._lines: dict[tuple[int, str], RankLine] = {}
        self._lost_below: dict[int, int] = {}
        self._has_news = False

    def add(self, steps: Iterable[tuple[Model, StepSpread]], lines: Iterable[RankLine]) -> None:
        """Take parts of steps, and where their ranks are."""
        for model, part in steps:
            self._table.add(model, part)
            self._has_news = True
        for line in lines:
            if len(self._lines) < _LINES or (line.rank, line.model) in self._lines:
                self._lines[line.rank, line.model] = line

    def take(self, child: int, payload: bytes) -> None:
        """Take a child's message.  Raises ``msgspec.DecodeError`` where it is none."""
        part = decode_part(payload)
        of_models = ((m, s) for m in part.models for s in m.steps)
        self.add((((m.model, m.hook), s) for m, s in of_models), decode_lines(part.lines))
        self._lost_below[child] = part.lost

    def message(self) -> bytes | None:
        """Return what came since the last message; ``None`` where that is nothing."""
        if not self._has_news:
            return None
        self._has_news = False
        models = [ModelSteps(*model, list(of.values())) for model, of in self._table.models() if of]
        self._table.clear()
        lines = msgspec.Raw(encode(list(self._lines.values())))
        return encode(Part(models, lines, self._table.lost + sum(self._lost_below.values())))
