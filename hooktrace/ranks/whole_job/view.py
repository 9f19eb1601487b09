"""This process's part in the view of the whole job, over the channel.

tracers --Batch--> RankSteps --> Gatherer --each second--> that of the parent ... --> JobSteps
hub --JobStepRecord--> its tracer            hub --look--> top
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ...records import JobStepRecord
from .gatherer import Gatherer, encode, interval_s
from .job_steps import JobSteps
from .rank_steps import ClockOffset, RankSteps

if TYPE_CHECKING:
    from ..channel.channel import Channel

STEPS = "job_steps"
"""What reports of this view are called."""
LOOK = "job"
"""And what ``hooktrace top`` asks."""

_TICK_S = 1.0


class JobView:
    """Of one process, in the channel's thread but for ``rank_steps``; ``hangs``: told last."""

    def __init__(
        self,
        channel: Channel,
        hangs: Mapping[int, str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._channel = channel
        self._hangs = hangs
        self._clock = clock
        self._interval_s = interval_s(channel.world_size)
        # All hosts within one second, by their wall clocks: what comes together costs the hub less.
        self._next_s = clock() - time.time() % self._interval_s + random.random() * _TICK_S
        self._parts: dict[RankSteps, int] = {}
        self._gatherer = Gatherer()
        self._job = JobSteps(channel.world_size, clock)
        channel.report_handlers[STEPS] = self._take
        channel.control_handlers[LOOK] = self.look
        channel.every(_TICK_S / 2, self._tick)

    def rank_steps(
        self, clock_offset: ClockOffset, push: Callable[[JobStepRecord], None]
    ) -> RankSteps:
        """Return what takes the batches of one tracer; safe from any thread.

        ``push``: takes records of its models over the job, at the hub.  Models of a further tracer
        of the process have another name.
        """
        used = set(self._parts.values())
        number = next(n for n in range(1, len(used) + 2) if n not in used)
        suffix = "" if number == 1 else f" (tracer {number})"
        world_size = self._channel.world_size
        part = RankSteps(self._gatherer, clock_offset, push, world_size, suffix)
        self._parts = {**self._parts, part: number}
        return part

    def forget(self, part: RankSteps) -> None:
        """Let go of a tracer that has closed."""
        self._parts = {one: number for one, number in self._parts.items() if one is not part}

    async def look(self, model: bytes) -> bytes:
        """Return a ``JobSnapshot`` as msgpack, of a model by its name, or of the last one."""
        wanted = model.decode(errors="replace")
        return encode(self._job.snapshot(wanted, tuple(self._hangs.values())))

    def _take(self, rank: int, payload: bytes) -> bool:
        if self._channel.is_hub:
            self._job.take(rank, payload)
            return True
        if rank == self._channel.rank:
            return False  # to the parent
        self._gatherer.take(rank, payload)
        return True

    def _tick(self) -> None:
        now = self._clock()
        if now < self._next_s:
            return
        while self._next_s <= now:
            self._next_s += self._interval_s
        message = self._gatherer.message()
        if message is not None:
            self._channel.report(STEPS, message)
        # The records of a rank that is alone say it all.
        if self._channel.is_hub and self._channel.world_size > 1:
            for record in self._job.newest():
                for part in self._parts:
                    if part.knows(record.model):
                        part.push(record)
