"""What probes and checks have found, until it has come to the host from its device.

ring --add--> AwaitedResults, in their order --arrived--> numbers of the records, anomalies
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from ..capture.buckets import BucketSlot, ModelState

if TYPE_CHECKING:
    from .assembler import Assembler


class Result(Protocol):
    """What was found on one call, of which the numbers are on their way to the host.

    ``scaled``: a loss scaler leaves a step out that is not finite.
    """

    slot: BucketSlot
    step: int
    scaled: bool

    def has_arrived(self) -> bool:
        """Return whether all is on the host."""

    def read(self) -> None:
        """Take what has arrived."""

    def arrive(self, into: Assembler) -> None:
        """Hand over what was read."""

    def let_go(self) -> None:
        """Take note that nobody reads it."""


class AwaitedResults:
    """Results in the order in which they were found; ``capacity``: how many may wait."""

    def __init__(self, capacity: int = 4096) -> None:
        self._capacity = capacity
        self._waiting: deque[Result] = deque()

    def add(self, result: Result) -> int:
        """Take one; returns how many of the oldest were given up for it."""
        self._waiting.append(result)
        given_up = max(0, len(self._waiting) - self._capacity)
        for _ in range(given_up):
            self._waiting.popleft().let_go()
        return given_up

    def arrived(self) -> Iterator[Result]:
        """Yield, read, those that have come; one that has not holds back those after it."""
        while self._waiting and self._waiting[0].has_arrived():
            result = self._waiting.popleft()
            result.read()
            yield result

    def holds(self, model: ModelState, step: int) -> bool:
        """Return whether something of a step has not come yet."""
        return any(r.step == step and r.slot.model is model for r in self._waiting)

    def give_up(self) -> int:
        """Let go of what has not come; returns how many."""
        given_up = len(self._waiting)
        while self._waiting:
            self._waiting.popleft().let_go()
        return given_up
