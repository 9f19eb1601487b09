"""Steps whose buckets are on a device: they wait, without blocking, until it is past their events.

StepCalls --add--> oldest first --passed, or too many--> StepCalls --resolve--> CallTimes
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from ..capture.calls import BucketCall
from ..capture.clocks import EventPool
from .stage_times import CallTimes, device_times, events_of
from .steps import StepCalls

_WAITING_STEPS = 64


def have_passed(calls: Sequence[BucketCall]) -> bool:
    """Whether the device is past all events of some calls; so it is where they have none."""
    return all(event.query() for event in events_of(calls))


def resolve(calls: Sequence[BucketCall], pool: EventPool) -> list[CallTimes | None]:
    """Return each call's times on the device, ``None`` for one without; gives the events back.

    All in ns since the first event of them all.
    """
    events = events_of(calls)
    times = [device_times(call, events[0]) if call.events else None for call in calls]
    for event in events:
        pool.give(event)
    return times


class WaitingSteps:
    """A bounded number of steps whose events the device has not passed, oldest first."""

    def __init__(self) -> None:
        self._steps: deque[StepCalls] = deque()

    def add(self, step: StepCalls) -> StepCalls | None:
        """Take a step; return one that is not to wait: this one without events, or the oldest."""
        if all(call.events is None for call in step.calls):
            return step
        self._steps.append(step)
        return self._steps.popleft() if len(self._steps) > _WAITING_STEPS else None

    def take_passed(self) -> Iterator[StepCalls]:
        """Yield the steps that the device has passed."""
        while self._steps and have_passed(self._steps[0].calls):
            yield self._steps.popleft()

    def take_all(self) -> Iterator[StepCalls]:
        """Yield the steps, whether the device has passed them or not."""
        while self._steps:
            yield self._steps.popleft()
