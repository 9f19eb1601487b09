"""What probes and checks have found, until it has come to the host from its device.

ring --add--> AwaitedResults, in their order --arrived--> numbers of the records, anomalies
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from ..capture.buckets import ModelState
from ..probes.check_result import CheckResult
from ..probes.probe_result import ProbeResult

Result = ProbeResult | CheckResult


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
