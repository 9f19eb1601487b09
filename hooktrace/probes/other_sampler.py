"""In which steps of a model the process's other collectives are seen.

first bucket of a step that is due --> a window (staging/group_hooks.py) --> that of the next one
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..staging import group_hooks
from .schedule import FIRST, Schedule
from .step_sampler import CallStart, Part

if TYPE_CHECKING:
    from ..tracing.tracer import Tracer


class OtherSampler(Part):
    """Step 2 of a model, and each ``every``-th one."""

    def __init__(self, every: int) -> None:
        self._schedule = Schedule(0, every, burst=FIRST)
        self.next_step = FIRST.start

    def enter(self, start: CallStart, sink: Tracer) -> bool:
        """Take note of the first bucket of a step at or after ``next_step``."""
        self.at(start.slot.model.name, start.step, start.ready, sink)
        return False

    def at(self, model: str, step: int, ready_ns: int, tracer: Tracer) -> None:
        """Take note of the first bucket of a step, without the rest of its call."""
        group_hooks.close_window(self, ready_ns)
        self.next_step = self._schedule.next_after(step)
        if self._schedule.turn(step) is not None:
            group_hooks.open_window(self, tracer, model, step, ready_ns)
            self.next_step = step + 1
