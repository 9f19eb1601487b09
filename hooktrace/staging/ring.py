"""The bounded buffer between the training thread and the drain: push, never wait.

    training thread, callbacks --push--> Ring --pop--> drain: entry.assemble(assembler)

An entry is a record, which goes out as it is, or has ``assemble(assembler)``, which tells what
becomes of it: a step, from its first call on; what a probe has found; a loss.  One that does not
fit is dropped and counted; its ``let_go``, if it has one, gives back what others can use again.
"""

from __future__ import annotations

import enum
import threading
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..tracing.assembler import Assembler


class State(enum.Enum):
    """The state of a tracer: the one attribute of it that every hook call reads.

    ::

        OFF <--recording = False, True--> RECORDING <--an anomaly, the next hook call--> ALARMED
                                   any of these --close()--> CLOSED
    """

    RECORDING = enum.auto()
    OFF = enum.auto()
    """Hooks run untraced: it was switched off, or the system gave no thread."""
    ALARMED = enum.auto()
    """The next hook call raises ``AnomalyError``, and hooks record again."""
    CLOSED = enum.auto()


RECORDING, ALARMED = State.RECORDING, State.ALARMED
"""The states that hooks compare with, without the look-up in the class."""


class Loss(NamedTuple):
    """Stands for what could not be recorded; ``reason``: one of ``LOSSES``."""

    reason: str
    why: str

    @classmethod
    def of_stamps(cls, error: Exception) -> Loss:
        """Return the loss of a call that could not be stamped at all."""
        return cls("stamp_failed", f"{type(error).__name__}: {error}")

    def assemble(self, into: Assembler) -> None:
        """Count it."""
        into.losses.add(self.reason, why=self.why)


class Ring:
    """A bounded first-in-first-out buffer for many producers; the last entry may pass the bound.

    ``capacity``: in calls of hooks; an entry is as many as its ``size`` says, or one.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.clear()

    def clear(self) -> None:
        """Begin anew, as in a forked child, where nobody else pushes yet."""
        self._entries: deque[object] = deque()
        self.filled = 0
        """How many calls and other entries wait."""
        self.dropped = 0
        """How many did not fit, ever."""
        self._lock = threading.RLock()  # a signal handler may push while its thread does

    def push(self, entry: object) -> None:
        """Add an entry, or drop and count it when the ring is full."""
        size = getattr(entry, "size", 1)
        with self._lock:
            if self.filled < self.capacity:
                self.filled += size
                self._entries.append(entry)
                return
        # Of a step that has begun its later calls are counted when they have come.
        self.drop(len(entry) if isinstance(entry, list) else 1)
        let_go = getattr(entry, "let_go", None)
        if let_go is not None:
            let_go()

    def drop(self, count: int) -> None:
        """Count what did not fit."""
        with self._lock:
            self.dropped += count

    def pop(self) -> object | None:
        """Take the oldest entry; ``None`` when there is none."""
        try:
            entry = self._entries.popleft()
        except IndexError:
            return None
        with self._lock:
            self.filled -= getattr(entry, "size", 1)
        return entry

    def __len__(self) -> int:
        """Number of entries waiting."""
        return len(self._entries)
