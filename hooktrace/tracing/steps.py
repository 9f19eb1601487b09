"""Ended calls, gathered into the steps that they belong to; and steps that took far too long.

    BucketCall --add--> open steps of its model --last bucket and all before it there--> StepCalls
    StepRecord --of_step--> AnomalyRecord of kind stall, of this rank

A step that stays incomplete (its backward pass failed, or a call was lost) is closed before the
next complete one, when the model is two steps further, or at the end.

A stall is a step that waited for its communication far longer than usual.  One rank sees that it
waited and for how long, not for whom: the report puts the ranks together.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from operator import attrgetter

from ..records import AnomalyRecord, StepRecord
from ..records.anomalies import anomaly_kind
from ..records.last_used import Bounded, LastUsed
from ..records.running_median import RunningMedian
from ..records.stall import ENOUGH_STEPS, is_stall
from ..records.units import ms
from ..staging.calls import BucketCall, StepCalls
from ..staging.slots import BucketSlot

_LAST = 64


class StallWatch:
    """Knows what is usual of each model: exposed time and period of its last steps."""

    def __init__(self) -> None:
        self._usual: LastUsed[str, tuple[RunningMedian, RunningMedian]] = LastUsed(
            lambda: (RunningMedian(_LAST, ENOUGH_STEPS), RunningMedian(_LAST, ENOUGH_STEPS - 1))
        )

    def of_step(self, slot: BucketSlot, step: StepRecord) -> AnomalyRecord | None:
        """Return the mark of a step that stalled; ``slot``: of one of its buckets."""
        if not step.settled or step.exposed_ns is None:
            return None
        exposed, period = self._usual.of(step.model)
        usual_exposed, usual_period = exposed.median, period.median
        if step.counts:
            exposed.add(step.exposed_ns)
            if step.previous_period_ns is not None:
                period.add(step.previous_period_ns)
        if usual_exposed is None or usual_period is None:
            return None
        if not is_stall(step.exposed_ns, usual_exposed, usual_period):
            return None
        checked = "; hooktrace sampled the step, which may be a part of it" if step.checked else ""
        return AnomalyRecord(
            kind="stall",
            model=step.model,
            hook=step.hook,
            rebuild=step.rebuild,
            step=step.step,
            bucket=-1,
            stage="exposed",
            time_ns=step.last_ready_ns,
            message=f"hook {step.hook!r}, step {step.step}: {ms(step.exposed_ns)} of exposed "
            f"communication, where {ms(usual_exposed)} is usual{checked}; this rank waited, and "
            f"cannot tell for whom: {anomaly_kind('stall').fix}",
            rank=slot.model.rank,
        )


_OPEN_STEPS = 2

_BY_BUCKET = attrgetter("slot.index")


class _OpenStep(list[BucketCall]):
    """The calls of a step in the making; ``expected``: its buckets, once the last one is there."""

    expected: int | None = None

    def add(self, call: BucketCall) -> bool:
        """Take a call; return whether no other one is missing."""
        self.append(call)
        if call.slot.is_last:
            self.expected = call.slot.index + 1
        return len(self) == self.expected

    def close(self) -> StepCalls:
        """Return the step as it is; one is complete where no call is missing, and none failed."""
        self.sort(key=_BY_BUCKET)
        last = self[-1].slot  # one of a static graph's first pass knows by now that it is the last
        whole = last.is_last and len(self) == last.index + 1
        rebuild = max([call.slot.rebuild for call in self])
        failed = any(call.error is not None for call in self)
        return StepCalls(self, rebuild, complete=whole and not failed)


class _OpenSteps(dict[int, _OpenStep]):
    """Those of one model; ``closed_to`` is the last step that takes no more calls."""

    closed_to = -1

    def close_to(self, last: int) -> list[StepCalls]:
        """End the steps up to ``last``, oldest first."""
        ended = [step for step in sorted(self) if step <= last]
        self.closed_to = max(self.closed_to, *ended[-1:], -1)
        return [self.pop(step).close() for step in ended]


class StepGatherer:
    """Gathers the calls of all models."""

    def __init__(self) -> None:
        self._models: Bounded[str, _OpenSteps] = Bounded()

    def add(self, call: BucketCall) -> list[StepCalls] | None:
        """Take a call; return the steps that it ends, oldest first, ``None`` if it came too late.

        DDP ends a backward pass before the next one begins: once a step is complete, nothing more
        can come for those before it.
        """
        name, step = call.slot.model.name, call.step
        model = self._models.get(name)
        if model is None:
            model = _OpenSteps()
        if step <= model.closed_to:
            return None
        ended: list[StepCalls] = []
        opened = model.get(step)
        if opened is None:
            opened = model[step] = _OpenStep()
            forgotten = self._models.put(name, model)
            ended = [] if forgotten is None else forgotten.close_to(sys.maxsize)
            ended += model.close_to(step - _OPEN_STEPS)
        if opened.add(call):
            ended += model.close_to(step)
        return ended

    def close_all(self) -> Iterator[StepCalls]:
        """End every open step, complete or not."""
        for model in self._models.values():
            yield from model.close_to(sys.maxsize)
