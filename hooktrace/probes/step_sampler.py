"""What is looked at on some steps of a model only, behind one comparison for each hook call.

    TracedHook --step >= model.sample_step--> StepSampler.enter --CallStart--> parts that are due
                                                |-- model.py                how lossy is it?
                                                |-- wire.py                 what is sent?
                                                +-- debug_checks.py         on every step
    call    <--- SampledCall, which holds it until DDP has its result
    future  <--- SampledCall.join: the very same result, a little later

What all this takes is stamped: it is the call's stage *check*, and the step counts in no timings.
A part that fails ends itself, and says so; training goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ..staging.calls import BucketCall
from ..staging.slots import BucketSlot, GradBucketLike
from .schedule import OFF

if TYPE_CHECKING:
    from ..tracing.tracer import Tracer

Future = Any  # torch.futures.Future or torch._C.Future


@dataclass(slots=True)
class CallStart:
    """A hook call that is about to begin; ``ready``: host ns at which DDP made it.

    ``looks``: each part that wants to see the call's result adds what looks at it.
    """

    slot: BucketSlot
    step: int
    ready: int
    bucket: GradBucketLike
    state: Any
    looks: list[Look] = field(default_factory=list)


class Look(Protocol):
    """What a part does with a call's result."""

    def join(self, future: Future) -> Future:
        """Return a future of the same result for DDP, complete once it was looked at."""

    def abandon(self, why: str) -> None:
        """Let go of the call, of which there will be no result to look at."""
        return


class Part(Protocol):
    """One thing that is looked at: whether, and on which steps, it decides itself.

    ``next_step``: the next step at which there is anything to do, ``OFF`` where buckets are not
    looked at.
    """

    next_step: int = OFF

    def enter(self, start: CallStart, sink: Tracer) -> bool:
        """Look at a call of a step at or after ``next_step``; raises nothing.

        Returns whether that took time, which is then no time of the hook.
        """
        return False

    def miss(self, slot: BucketSlot, step: int, sink: Tracer) -> None:
        """Take note that a call is not looked at: it is not recorded, or could not be stamped."""
        return

    def leave(self) -> None:
        """Let the other ranks know that this one samples no more, if they wait for it."""
        return

    def begin_in_child(self) -> None:
        """In a forked child, let go of what is the parent's."""
        return

    def replan(self, first: int, number: int) -> bool:
        """Look at ``number`` steps from ``first`` on, too; returns if this part does.  Any thread.

        All ranks of the model are told the same.
        """
        return False


class StepSampler:
    """Everything that is sampled of one model: ``parts``, asked in this order.

    ``asked``: whoever changes what parts do from another thread sets it, and then the model's
    ``sample_step``, so that the next call comes here, whatever the training thread is at.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts
        self.next_step = min((part.next_step for part in parts), default=OFF)
        self.asked = False

    def replan(self, first: int, number: int) -> bool:
        """Look at ``number`` steps from ``first`` on, too; returns if any part can.  Any thread."""
        each = [part.replan(first, number) for part in self._parts]
        return any(each)

    def enter(self, start: CallStart, sink: Tracer) -> SampledCall | None:
        """Look at a call of a step at or after ``next_step``.

        Returns what is to be asked when it ends, ``None`` where no part looked at it.
        """
        self.asked = False
        due = [part for part in self._parts if start.step >= part.next_step]
        took_time = [part.enter(start, sink) for part in due]
        self.next_step = min(part.next_step for part in self._parts)
        return SampledCall(start.looks) if any(took_time) else None

    def miss(self, slot: BucketSlot, step: int, sink: Tracer) -> None:
        """Take note that a call was not looked at: other ranks may wait for it."""
        for part in self._parts:
            part.miss(slot, step, sink)

    def leave(self) -> None:
        """Let the other ranks know that this one samples no more."""
        for part in self._parts:
            part.leave()

    def begin_in_child(self) -> None:
        """In a forked child, let go of what is the parent's."""
        for part in self._parts:
            part.begin_in_child()


class SampledCall:
    """A call that is looked at, and what DDP gets of it; ``looks``: those that want the result."""

    __slots__ = ("_call", "_looks")

    def __init__(self, looks: Sequence[Look]) -> None:
        self._looks = looks
        self._call: BucketCall | None = None

    def hold(self, call: BucketCall) -> None:
        """Hold a call until its result was looked at, if anybody wants it."""
        if self._looks:
            call.held = True
            self._call = call

    def abandon(self, why: str = "the hook raised") -> None:
        """Let go of a call whose result nobody will look at, ended or not."""
        for look in self._looks:
            look.abandon(why)
        self._let_go()

    def join(self, future: Future) -> Future:
        """Return the future for DDP: the hook's own result, once it was looked at."""
        joined = future
        try:
            for look in self._looks:
                joined = look.join(joined)
            return joined.then(self._pass_on) if self._looks else future
        except Exception as error:  # out of memory: DDP gets what it would without hooktrace
            self.abandon(f"{type(error).__name__}: {error}")
            return future

    def _pass_on(self, future: Future) -> Any:
        try:
            return future.value()
        finally:
            self._let_go()

    def _let_go(self) -> None:
        self._looks, call, self._call = (), self._call, None
        if call is not None:
            call.release()
