"""What a node tells its parent: its own part and those of its children, as one message.

own steps, messages of children --add--> StepTable, lines --message--> bytes
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from ...records import StepSpread
from ...records.job import merged
from ...records.last_used import LastUsed
from .messages import MOST_STEPS, ModelSteps, Part, RankLine, decode_lines, decode_part, encode

Model = tuple[str, str]
"""Its name and its hook's."""

_MODELS = 16
"""Told apart at once; a job may make new ones for as long as it runs."""


class StepTable:
    """Keeps the ``most`` steps of each model that came last; ``lost`` counts those without room."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._models: LastUsed[Model, dict[int, StepSpread]] = LastUsed(dict, _MODELS)
        self.lost = 0

    def add(self, model: Model, part: StepSpread) -> tuple[StepSpread | None, bool]:
        """Take a part of a step; returns the step by now, and whether it is a new one.

        ``None`` of a step that is older than all that are kept.
        """
        steps = self._models.of(model)
        known = steps.get(part.step)
        if known is not None:
            steps[part.step] = whole = merged(known, part)
            return whole, False
        if len(steps) >= self._most:
            oldest = next(iter(steps))
            self.lost += 1
            if part.step < oldest:
                return None, False
            del steps[oldest]
        steps[part.step] = part
        return part, True

    def of(self, model: Model) -> dict[int, StepSpread]:
        """Return a model's steps by number; empty where there is none of it."""
        return self._models.of(model) if model in self._models else {}

    def models(self) -> Iterator[tuple[Model, dict[int, StepSpread]]]:
        """Yield each model with its steps, the one that was seen last at the end."""
        return iter(self._models.items())

    def clear(self) -> None:
        """Forget all steps, but not how many were lost."""
        self._models.clear()


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
