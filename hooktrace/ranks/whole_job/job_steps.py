"""The steps of the whole job, at its hub.

    Part of each node below --take--> StepTable --newest--> JobStepRecord
                                      lines     --snapshot--> JobSnapshot

What comes of a step after its record still counts in the step, and is counted as late.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from ...records import JobStepRecord
from ...records.last_used import Bounded
from .gatherer import (
    Model,
    Part,
    Plan,
    RankLine,
    StepTable,
    decode_lines,
    decode_part,
    next_plan,
)
from .snapshot import STEPS, JobSnapshot, giving_way, rows_of

KEPT_STEPS = 512
"""Of each model."""

WAIT_S = 10.0
"""How long ranks that have not told are waited for, and twice the interval at which nodes tell."""


class JobSteps:
    """Of the hub; used in the channel's thread only.  ``clock``: s, never goes back."""

    def __init__(
        self, world_size: int, clock: Callable[[], float] = time.monotonic, plan: Plan | None = None
    ) -> None:
        self._world_size = world_size
        self._clock = clock
        self._table = StepTable(KEPT_STEPS)
        self._since: Bounded[tuple[Model, int], float] = Bounded(16 * KEPT_STEPS)
        """When the first rank told of a step."""
        self._recorded: Bounded[Model, int] = Bounded()
        self._told: dict[int, tuple[float, Part]] = {}
        self._late = 0
        self._fronts: dict[Model, int] = {}
        self._planned_s = clock()
        self.plan = plan or Plan()

    def take(self, sender: int, payload: bytes) -> None:
        """Take a node's message.  Raises ``msgspec.DecodeError`` where it is none."""
        part, now = decode_part(payload), self._clock()
        self._told[sender] = now, Part([], part.lines.copy(), part.lost)
        for model, steps in part.steps:
            recorded = self._recorded.get(model, -1)
            for step in steps:
                if self._table.add(model, step):
                    self._since[model, step.step] = now
                if step.step <= recorded:
                    self._late += step.ranks

    def newest(self) -> list[JobStepRecord]:
        """Return the newest step of each model that is new, and whole or waited for long enough."""
        since = self._clock() - WAIT_S - 2 * self.plan.interval_s
        size = self._world_size
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

    def next_plan(self) -> Plan:
        """Return, and follow from now on, the plan that fits what came since the last call."""
        now = self._clock()
        passed_s, self._planned_s = now - self._planned_s, now
        fronts = {model: max(steps) for model, steps in self._table.models() if steps}
        # By numbers: how many steps came depends on the plan that was followed meanwhile.
        made = sum(front - self._fronts.get(model, front) for model, front in fronts.items())
        self._fronts = fronts
        if passed_s > 0:
            self.plan = next_plan(self.plan, len(self._told), made / passed_s)
        return self.plan

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
            self.plan.interval_s,
            self.plan.every,
            tuple(sorted(steps.values(), key=lambda s: s.step)[-STEPS:]),
            rows,
            self._late,
            sum(part.lost for _, part in self._told.values()),
            hangs,
        )

    def _lines(self, model: str) -> Iterator[tuple[float, RankLine]]:
        now = self._clock()
        for told_s, part in giving_way(self._told.values()):
            for line in decode_lines(part.lines):
                if line.model == model:
                    yield now - told_s, line
