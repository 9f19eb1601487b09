"""The steps of the whole job, at its hub.

    Part of each node below --take--> StepTable --newest--> JobStepRecord
                                      lines     --snapshot--> JobSnapshot

What comes of a step after its record still counts in the step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from ...records import JobStepRecord
from ...records.last_used import Bounded
from .gatherer import Model, Part, RankLine, StepTable, decode_lines, decode_part, interval_s
from .snapshot import STEPS, JobSnapshot, giving_way, rows_of

KEPT_STEPS = 512
"""Of each model."""

WAIT_S = 10.0
"""How long ranks that have not told are waited for, and twice the interval at which nodes tell."""


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
        for model, steps in self._table.models():
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
        known = dict(self._table.models())
        own = [model for model in known if wanted in ("", model[0])]
        model, hook = own[-1] if own else (wanted, "")
        steps = known.get((model, hook), {})
        rows, told_by = rows_of(lambda: self._lines(model), steps)
        return JobSnapshot(
            model,
            hook,
            tuple(dict.fromkeys(name for name, _ in known)),
            self._world_size,
            told_by,
            tuple(sorted(steps.values(), key=lambda s: s.step)[-STEPS:]),
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
