"""Ended calls, gathered into the steps that they belong to.

    BucketCall --add--> open steps of its model --last bucket and all before it there--> StepCalls

A step that stays incomplete (its backward pass failed, or a call was lost) is closed before the
next complete one, when the model is two steps further, or at the end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from ..capture.calls import BucketCall

_OPEN_STEPS = 2

StepCalls = list[BucketCall]
"""One step's calls; of a closed step in the order of their buckets."""


@dataclass(slots=True)
class _OpenStep:
    """A step in the making; ``count``: of its buckets, once the last one is there."""

    calls: StepCalls = field(default_factory=list)
    count: int | None = None

    def add(self, call: BucketCall) -> bool:
        """Take a call; return whether no other one is missing."""
        self.calls.append(call)
        if call.slot.is_last:
            self.count = call.slot.index + 1
        return len(self.calls) == self.count


@dataclass(slots=True)
class _OpenSteps:
    """Of one model; ``closed_to`` is the last step that takes no more calls."""

    steps: dict[int, _OpenStep] = field(default_factory=dict)
    closed_to: int = -1

    def close(self, step: int) -> StepCalls:
        """End a step."""
        self.closed_to = max(self.closed_to, step)
        return sorted(self.steps.pop(step).calls, key=lambda call: call.slot.index)


class StepGatherer:
    """Gathers the calls of all models."""

    def __init__(self) -> None:
        self._models: defaultdict[str, _OpenSteps] = defaultdict(_OpenSteps)

    def add(self, call: BucketCall) -> list[StepCalls] | None:
        """Take a call; return the steps that it ends, oldest first, ``None`` if it came too late.

        DDP ends a backward pass before the next one begins: once a step is complete, nothing more
        can come for those before it.
        """
        model, step = self._models[call.slot.model.name], call.step
        if step <= model.closed_to:
            return None
        opened = model.steps.get(step)
        if opened is None:
            opened = model.steps[step] = _OpenStep()
        last_ended = step if opened.add(call) else step - _OPEN_STEPS
        return [model.close(s) for s in sorted(model.steps) if s <= last_ended]

    def close_all(self) -> Iterator[StepCalls]:
        """End every open step, complete or not."""
        for model in self._models.values():
            for step in sorted(model.steps):
                yield model.close(step)


def is_complete(calls: StepCalls) -> bool:
    """Whether no call of a step is missing."""
    last = next((call.slot for call in calls if call.slot.is_last), None)
    return last is not None and len(calls) == last.index + 1
