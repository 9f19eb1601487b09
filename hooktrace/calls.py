"""The stamps of one hook call: the only thing the training thread and its callbacks write.

    wrapper: BucketCall(...)   driver: issued / arrived / finished or failed   wrapper: returned
                                                      |                            |
                                                      +--- the last of the two pushes to the ring

A call is written by the training thread and then by one callback thread, never by both at once,
and is not touched after it was pushed.  It holds numbers, a slot and (on a device) events: never a
tensor, and never a process group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from .timing import Clock, DeviceEvent, EventPool

if TYPE_CHECKING:
    from .layout import BucketSlot

__all__ = ["BucketCall", "Payload", "Round"]

Round = tuple[str, int, object, int, int, int]
"""Of one collective: kind, wire bytes, dtype, group size, the group's key and its workers."""


class _Group(Protocol):
    @property
    def size(self) -> int: ...
    @property
    def key(self) -> int: ...
    @property
    def workers(self) -> int: ...


class Payload(Protocol):
    """What a call reads of an operation when it is issued."""

    @property
    def kind(self) -> str:
        """The collective's name."""

    @property
    def wire_bytes(self) -> int:
        """Payload bytes of this rank."""

    @property
    def dtype(self) -> object:
        """The payload's dtype."""

    @property
    def info(self) -> _Group:
        """The group's facts."""


class BucketCall:
    """One call of a hook for one bucket, being stamped.

    ``marks`` holds two stamps for each round: issued, arrived.  ``events`` holds, for a bucket on
    a device, one event for each of ready, the marks, and done.
    """

    __slots__ = (
        "_clock",
        "_parties",
        "_pool",
        "_push",
        "done",
        "error",
        "error_stage",
        "events",
        "launched",
        "marks",
        "ready",
        "rounds",
        "shadow",
        "slot",
        "staged",
        "started",
        "step",
    )

    def __init__(
        self,
        slot: BucketSlot,
        step: int,
        ready: int,
        *,
        shadow: bool,
        staged: bool,
        clock: Clock,
        push: Callable[[BucketCall], None],
        pool: EventPool | None,
    ) -> None:
        self.slot = slot
        self.step = step
        self.shadow = shadow
        self.staged = staged
        self.ready = ready
        self.started = ready
        self.launched = ready
        self.done = ready
        self.marks: list[int] = []
        self.rounds: list[Round] = []
        self.error: str | None = None
        self.error_stage = ""
        self._clock = clock
        self._push = push
        self._pool = pool
        self.events: list[DeviceEvent] | None = None if pool is None else [pool.record()]
        # Two parties end a call: the hook's return and the completion of its future.  `list.pop`
        # is atomic, so exactly one of them takes the last token.
        self._parties = [True, False]

    def begun(self) -> None:
        """Stamp that the chain got its turn in the serial lane."""
        self.started = self._clock()

    def issued(self, operation: Payload) -> None:
        """Stamp that a collective is about to be issued."""
        info = operation.info
        self.rounds.append(
            (
                operation.kind,
                operation.wire_bytes,
                operation.dtype,
                info.size,
                info.key,
                info.workers,
            )
        )
        if self._pool is not None:
            self.events.append(self._pool.record())  # type: ignore[union-attr]
        self.marks.append(self._clock())

    def arrived(self) -> None:
        """Stamp that the collective's result is there."""
        self.marks.append(self._clock())
        if self._pool is not None:
            self.events.append(self._pool.record())  # type: ignore[union-attr]

    def finished(self) -> None:
        """Stamp that the bucket's result is there."""
        self.done = self._clock()
        if self._pool is not None:
            self.events.append(self._pool.record())  # type: ignore[union-attr]
        if self._parties.pop():
            self._settle()

    def failed(self, stage: str, error: BaseException) -> None:
        """Stamp that the hook raised in ``stage``; takes the place of ``finished``."""
        self.error = f"{type(error).__name__}: {error}"
        self.error_stage = stage
        self.finished()

    def returned(self) -> None:
        """Stamp that the hook has returned to DDP."""
        self.launched = self._clock()
        if self._parties.pop():
            self._settle()

    def _settle(self) -> None:
        self.slot.in_flight = None
        self._push(self)
