"""What is looked at on some steps of a model only, behind one comparison for each hook call.

    TracedHook --step >= model.sample_step--> StepSampler.enter --CallStart--> parts that are due
                                                |-- model.py or local.py    how lossy is it?
                                                |-- wire.py                 what is sent?
                                                +-- debug_checks.py         on every step
    call    <--- its recorder: the tracer, or the probe that holds the call back
    future  <--- SampledCall.join: the very same result, a little later

A part that fails ends itself, and says so; training goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from ..capture.buckets import BucketSlot, GradBucketLike
from ..capture.calls import Recorder

Future = Any  # torch.futures.Future or torch._C.Future


class CallStart(NamedTuple):
    """A hook call that is about to begin; ``ready``: host ns at which DDP made it."""

    slot: BucketSlot
    step: int
    ready: int
    bucket: GradBucketLike
    state: Any


class Sink(Recorder, Protocol):
    """What looking at calls needs of a tracer."""

    @property
    def push(self) -> Callable[[object], None]:
        """Takes what was found, and ended calls; never blocks."""

    def clock_offset(self, host_ns: int) -> tuple[int, int] | None:
        """Return the offset to rank 0's clock and its uncertainty, ns; ``None`` if unknown."""

    def wake(self) -> None:
        """Let the drain work now."""


class Look(Protocol):
    """One part's view of a call under way."""

    @property
    def recorder(self) -> Recorder | None:
        """What the call has to report to instead of the tracer, ``None`` if that does not matter.

        Of all parts one only may have it.
        """
        return None

    def join(self, future: Future) -> Future:
        """Return a future of the same result for DDP, complete once it was looked at."""

    def abandon(self) -> None:
        """Let go of the call: its hook raised."""
        return


class Part(Protocol):
    """One thing that is looked at: whether, and on which steps, it decides itself.

    ``next_step``: the next step at which there is anything to do.
    """

    next_step: int

    def enter(self, start: CallStart, sink: Sink) -> Look | None:
        """Look at a call of a step at or after ``next_step``; raises nothing.

        Returns ``None`` where there is nothing to do when the call ends.
        """

    def leave(self) -> None:
        """Let the other ranks know that this one samples no more, if they wait for it."""
        return

    def begin_in_child(self) -> None:
        """In a forked child, let go of what is the parent's."""
        return


class StepSampler:
    """Everything that is sampled of one model: ``parts``, asked in this order."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts
        self.next_step = min(part.next_step for part in parts)

    def enter(self, start: CallStart, sink: Sink) -> SampledCall | None:
        """Look at a call of a step at or after ``next_step``.

        Returns what is to be asked when it ends, ``None`` where there is nothing.
        """
        due = [part for part in self._parts if start.step >= part.next_step]
        looks = [look for part in due if (look := part.enter(start, sink)) is not None]
        self.next_step = min(part.next_step for part in self._parts)
        return SampledCall(looks) if looks else None

    def leave(self) -> None:
        """Let the other ranks know that this one samples no more."""
        for part in self._parts:
            part.leave()

    def begin_in_child(self) -> None:
        """In a forked child, let go of what is the parent's."""
        for part in self._parts:
            part.begin_in_child()


class SampledCall:
    """A call that is looked at: what it reports to, and what DDP gets of it."""

    __slots__ = ("_looks",)

    def __init__(self, looks: Sequence[Look]) -> None:
        self._looks = looks

    def recorder(self, otherwise: Recorder) -> Recorder:
        """Return what the call reports to."""
        return next((own for look in self._looks if (own := look.recorder)), otherwise)

    def abandon(self) -> None:
        """Let go of a call whose hook raised."""
        for look in self._looks:
            look.abandon()

    def join(self, future: Future) -> Future:
        """Return the future for DDP: the hook's own result, once it was looked at."""
        for look in self._looks:
            future = look.join(future)
        return future
