"""The steps of the whole job, at its hub.

    Part of each node below --take--> StepTable --closed--> JobStepRecord
                                      lines     --snapshot--> JobSnapshot

A step is closed, and becomes a record, when all ranks that are expected have told of it, or some
seconds after the first did.  What comes later still counts in the step, and is counted as late.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator

from ...records import JobStepRecord, StepSpread
from ...records.last_used import LastUsed
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
"""After the first rank, and twice the interval at which nodes tell, until a step is closed."""

_USUAL = 8

_Key = tuple[Model, int]


class JobSteps:
    """Of the hub; used in the channel's thread only.  ``clock``: s, never goes back."""

    def __init__(
        self, world_size: int, clock: Callable[[], float] = time.monotonic, plan: Plan | None = None
    ) -> None:
        self._world_size = world_size
        self._clock = clock
        self._table = StepTable(KEPT_STEPS)
        self._open: dict[_Key, float] = {}
        self._closed: deque[_Key] = deque(maxlen=KEPT_STEPS)
        self._counts: LastUsed[Model, deque[int]] = LastUsed(lambda: deque(maxlen=_USUAL))
        self._told: dict[int, tuple[float, Part]] = {}
        self._late = 0
        self._lost = 0
        self._fronts: dict[Model, int] = {}
        self._planned_s = clock()
        self.plan = plan or Plan()

    def take(self, sender: int, payload: bytes) -> None:
        """Take a node's message.  Raises ``msgspec.DecodeError`` where it is none."""
        part = decode_part(payload)
        self._told[sender] = self._clock(), Part([], part.lines.copy(), part.lost)
        for model, steps in part.steps:
            expected = self._expects(model)
            for step in steps:
                self._add(model, step, expected)

    def _add(self, model: Model, part: StepSpread, expected: int) -> None:
        whole, is_new = self._table.add(model, part)
        key = model, part.step
        if is_new:
            self._open[key] = self._clock()
            if len(self._open) > 2 * KEPT_STEPS:
                self._close(next(iter(self._open)))
        if key not in self._open:
            self._late += part.ranks
            if whole is not None and whole.ranks > expected:
                self._counts.of(model).append(whole.ranks)
        elif whole is not None and whole.ranks >= expected:
            self._close(key)

    def _close(self, key: _Key) -> None:
        del self._open[key]
        self._lost += len(self._closed) == KEPT_STEPS
        self._closed.append(key)

    def _expects(self, model: Model) -> int:
        """Return how many ranks tell of a model: all, unless its last steps waited in vain."""
        return max(self._counts.of(model), default=self._world_size)

    def closed(self) -> list[JobStepRecord]:
        """Return the steps that were closed since the last call."""
        now = self._clock()
        patience_s = WAIT_S + 2 * self.plan.interval_s
        for key, since in list(self._open.items()):
            if now - since < patience_s:
                break
            whole = self._table.of(key[0]).get(key[1])
            if whole is not None:  # a model may be on some ranks only
                self._counts.of(key[0]).append(whole.ranks)
            self._close(key)
        keys = list(self._closed)
        self._closed.clear()
        found = [(model, self._table.of(model).get(step)) for model, step in keys]
        # Steps that were closed make room for others; one that went before that is lost.
        self._lost += sum(spread is None for _, spread in found)
        return [
            JobStepRecord(model=m, hook=h, world_size=self._world_size, spread=spread)
            for (m, h), spread in found
            if spread is not None
        ]

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
            self._lost + sum(part.lost for _, part in self._told.values()),
            hangs,
        )

    def _lines(self, model: str) -> Iterator[tuple[float, RankLine]]:
        now = self._clock()
        for told_s, part in giving_way(self._told.values()):
            for line in decode_lines(part.lines):
                if line.model == model:
                    yield now - told_s, line
