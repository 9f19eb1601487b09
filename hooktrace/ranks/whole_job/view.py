"""This process's part in the view of the whole job, over the channel.

tracers --Batch--> RankSteps --> Gatherer --each second--> that of the parent ... --> JobSteps
hub --Plan--> all            hub --JobStepRecord--> its tracer            hub --look--> top
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...records import JobStepRecord
from .gatherer import Gatherer, decode_plan, encode
from .job_steps import JobSteps
from .rank_steps import ClockOffset, RankSteps

if TYPE_CHECKING:
    from ..channel.channel import Channel

STEPS, PLAN = "job_steps", "job_plan"
"""What reports and notices of this view are called."""
LOOK = "job"
"""And what ``hooktrace top`` asks."""

_TICK_S = 1.0
_PLAN_S = 5.0
_REMIND_S = 60.0
"""The plan is told again, to ranks that came late."""


class JobView:
    """Of one process, in the channel's thread but for ``rank_steps``."""

    def __init__(self, channel: Channel, clock: Callable[[], float] = time.monotonic) -> None:
        self._channel = channel
        self._clock = clock
        self._planned_s = self._told_s = clock()
        self._next_s = clock() + random.random() * _TICK_S  # not all hosts at once
        self._parts: dict[RankSteps, int] = {}
        self._gatherer = Gatherer()
        self._job: JobSteps | None = None
        channel.report_handlers[STEPS] = self._take
        channel.notice_handlers[PLAN] = self._follow
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
        part = RankSteps(self._gatherer, clock_offset, push, suffix)
        self._parts = {**self._parts, part: number}
        return part

    def forget(self, part: RankSteps) -> None:
        """Let go of a tracer that has closed."""
        self._parts = {one: number for one, number in self._parts.items() if one is not part}

    async def look(self, model: bytes) -> bytes:
        """Return a ``JobSnapshot`` as msgpack, of a model by its name, or of the last one."""
        hangs = (hang for part in self._parts for hang in part.hangs)
        return encode(self._hub().snapshot(model.decode(errors="replace"), tuple(hangs)))

    def _hub(self) -> JobSteps:
        if self._job is None:
            self._job = JobSteps(self._channel.world_size, self._clock, self._gatherer.plan)
        return self._job

    def _take(self, rank: int, payload: bytes) -> bool:
        if self._channel.is_hub:
            self._hub().take(rank, payload)
            return True
        if rank == self._channel.rank:
            return False  # to the parent
        self._gatherer.take(rank, payload)
        return True

    def _follow(self, payload: bytes) -> None:
        self._gatherer.plan = decode_plan(payload)

    def _tick(self) -> None:
        now = self._clock()
        if now < self._next_s:
            return
        self._next_s = now + self._gatherer.plan.interval_s
        message = self._gatherer.message()
        if message is not None:
            self._channel.report(STEPS, message)
        if self._channel.is_hub:
            self._lead(self._hub(), now)

    def _lead(self, job: JobSteps, now: float) -> None:
        """Do what the hub does beyond: the last step of each model is a record, and the plan."""
        is_alone = self._channel.world_size == 1  # whose own records say it all
        for record in [] if is_alone else job.newest():
            for part in self._parts:
                if part.knows(record.model):
                    part.push(record)
        if now - self._planned_s < _PLAN_S:
            return
        self._planned_s = now
        plan = job.next_plan()
        if plan != self._gatherer.plan or now - self._told_s > _REMIND_S:
            self._told_s = now
            self._channel.tell(PLAN, encode(plan))
