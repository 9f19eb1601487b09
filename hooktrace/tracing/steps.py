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


@dataclass(slots=True)
class StepCalls:
    """One step's calls, in the order of their buckets; ``complete``: none is missing."""

    calls: list[BucketCall]
    complete: bool


@dataclass(slots=True)
class _OpenSteps:
    """Of one model; ``closed_to`` is the last step that takes no more calls."""

    calls: dict[int, list[BucketCall]] = field(default_factory=dict)
    closed_to: int = -1

    def close(self, step: int, *, complete: bool = False) -> StepCalls:
        """End a step."""
        self.closed_to = max(self.closed_to, step)
        calls = sorted(self.calls.pop(step), key=lambda call: call.slot.index)
        return StepCalls(calls, complete)


class StepGatherer:
    """Gathers the calls of all models."""

    def __init__(self) -> None:
        self._models: defaultdict[str, _OpenSteps] = defaultdict(_OpenSteps)

    def add(self, call: BucketCall) -> list[StepCalls] | None:
        """Take a call; return the steps that it ends, oldest first, ``None`` if it came too late.

        DDP ends a backward pass before the next one begins: once a step is complete, nothing more
        can come for those before it.
        """
        steps, step = self._models[call.slot.model.name], call.step
        if step <= steps.closed_to:
            return None
        calls = steps.calls.setdefault(step, [])
        calls.append(call)
        complete = _is_complete(calls)
        last_open = step - 1 if complete else step - _OPEN_STEPS
        ended = [steps.close(s) for s in sorted(steps.calls) if s <= last_open]
        return [*ended, steps.close(step, complete=True)] if complete else ended

    def close_all(self) -> Iterator[StepCalls]:
        """End every open step, complete or not."""
        for steps in self._models.values():
            for step in sorted(steps.calls):
                yield steps.close(step)


def _is_complete(calls: list[BucketCall]) -> bool:
    last = next((call.slot for call in calls if call.slot.is_last), None)
    return last is not None and len(calls) == last.index + 1
