"""Which steps of a plain hook's model are looked up in PyTorch's Flight Recorder.

step due --> WireSample --> ring, drain; wire.py says what was sent
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ..staging.calls import clock_anchor
from .schedule import FIRST, Schedule
from .step_sampler import CallStart, Part
from .wire import WireSample

if TYPE_CHECKING:
    from ..tracing.tracer import Tracer

_USUAL = 100
_REST_NS = 25 * 10**9


class WireSampler(Part):
    """Marks the sampled steps of one model: step 2, and each ``every``-th one.

    A dump of the recorder holds up the interpreter.  Where steps are short and nobody asked for
    more than the usual distance, samples keep so far apart in time that this stays within 0.1 %.
    """

    def __init__(self, every: int) -> None:
        self._schedule = Schedule(0, every, burst=FIRST)
        self._sampled = -1
        self._rested_ns = 0
        self.next_step = FIRST.start

    def replan(self, first: int, number: int) -> bool:
        """Sample the ``number`` steps from ``first`` on, too."""
        self._schedule.burst = range(first, first + number)
        self._rested_ns = 0
        self.next_step = min(self.next_step, first)
        return True

    def enter(self, start: CallStart, sink: Tracer) -> bool:
        """Take note of a call of a step at or after ``next_step``."""
        step = start.step
        if step == self._sampled:
            return False
        if step == self._sampled + 1:
            sink.wake()
        in_burst = step in self._schedule.burst
        self.next_step = self._schedule.next_after(step)
        if self._schedule.turn(step) is not None:
            # In this very step: somebody may set the wall clock during a run.
            now, wall = clock_anchor(sink.clock)
            if in_burst or now >= self._rested_ns:
                sink.push(WireSample(start.slot.model.name, step, threading.get_ident(), now, wall))
                self._rested_ns = now + (_REST_NS if self._schedule.every >= _USUAL else 0)
                self._sampled = step
                self.next_step = step + 1
        return False
