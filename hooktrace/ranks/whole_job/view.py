"""This process's part in the view of the whole job: what it tells of its own steps, and to whom.

tracers --Batch--> RankSteps --> Gatherer --each second--> that of the parent ... --> JobSteps
hub --JobStepRecord--> its tracer            hub --look--> top
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ...records import AnomalyRecord, Batch, JobStepRecord, StepRecord, StepSpread
from ...records.job import range_of
from ...records.last_used import LastUsed
from ..channel.messages import encode
from .job_steps import Gatherer, JobSteps, RankLine, interval_s, told_every

if TYPE_CHECKING:
    from ..channel.channel import Channel

ClockOffset = Callable[[int], tuple[int, int] | None]
"""Of a host time: the offset to rank 0's clock and its uncertainty, ns; ``None`` if unknown."""

STEPS = "job_steps"
"""What reports of this view are called."""
LOOK = "job"
"""And what ``hooktrace top`` asks."""

_TICK_S = 1.0

_MODELS = 4
"""Of a rank's models, the last that are shown by rank."""
_LAST = 8
"""Steps that a rank's means, and its lateness, are of."""


class RankSteps:
    """The steps of one tracer; of the process's second ``number`` models have another name.

    ``world_size``: of the job, which says how many of its steps are told.
    """

    def __init__(
        self,
        gatherer: Gatherer,
        clock_offset: ClockOffset,
        push: Callable[[JobStepRecord], None],
        world_size: int = 1,
        number: int = 1,
    ) -> None:
        self.push = push
        self.number = number
        self._gatherer = gatherer
        self._suffix = "" if number == 1 else f" (tracer {number})"
        self._every = told_every(world_size)
        # So far apart that they reach back to what the others have told, who tell at other times.
        self._apart_ns = interval_s(world_size) * 2e9 / _LAST
        self._clock_offset = clock_offset
        self._lines: LastUsed[str, _Line] = LastUsed(_Line, _MODELS)

    def add(self, batch: Batch) -> None:
        """Take the steps of a batch."""
        rank, host = batch.run.rank, batch.run.host[:64]
        parts = []
        for step, _ in batch.steps:
            model = step.model + self._suffix
            known, part = self._lines.of(model), self._part(step, rank)
            known.add(part)
            if step.step % self._every == 0:
                known.arrived(part, self._apart_ns)
                parts.append(((model, step.hook), part))
        for anomaly in batch.of(AnomalyRecord):
            if anomaly.model + self._suffix in self._lines:
                self._lines.of(anomaly.model + self._suffix).saw(anomaly)
        lines = [
            replace(known.line, rank=rank, host=host, model=model)
            for model, known in self._lines.items()
        ]
        self._gatherer.add(parts, lines)

    def knows(self, model: str) -> bool:
        """Return whether a model, named with the suffix, is one of this tracer's."""
        return model in self._lines

    def _part(self, step: StepRecord, rank: int) -> StepSpread:
        exposed_ns = step.exposed_ns if step.counts else None
        # Ranks of a sharded model wait for each other at each unit: who came late to one of them
        # comes to the last one with all others, which would say that nobody was.
        has_arrival = step.counts and not step.sharded
        offset = self._clock_offset(step.last_ready_ns) if has_arrival else None
        arrival_ns = None if offset is None else step.last_ready_ns + offset[0]
        return StepSpread(
            step.step,
            incomplete=int(not step.complete),
            period=range_of(step.previous_period_ns, rank),
            period_total_ns=step.previous_period_ns or 0,
            exposed=range_of(exposed_ns, rank),
            exposed_total_ns=exposed_ns or 0,
            arrival=range_of(arrival_ns, rank),
            uncertainty_ns=0 if offset is None else offset[1],
        )


class _Line:
    """Where this rank is with one model."""

    def __init__(self) -> None:
        self._periods: deque[int] = deque(maxlen=_LAST)
        self._exposed: deque[int] = deque(maxlen=_LAST)
        self.line = RankLine(0, "", "", 0, None, None, (), 0)

    def add(self, part: StepSpread) -> None:
        if part.period is not None:
            self._periods.append(part.period.most_ns)
        if part.exposed is not None:
            self._exposed.append(part.exposed.most_ns)
        period_ns, exposed_ns = _mean(self._periods), _mean(self._exposed)
        self.line = replace(self.line, step=part.step, period_ns=period_ns, exposed_ns=exposed_ns)

    def arrived(self, part: StepSpread, apart_ns: float) -> None:
        if part.arrival is None:
            return
        at, known = part.arrival.most_ns, self.line.arrivals
        if not known or at - known[-1][1] >= apart_ns:
            known = (*known, (part.step, at))[-_LAST:]
            self.line = replace(self.line, arrivals=known, uncertainty_ns=part.uncertainty_ns)

    def saw(self, anomaly: AnomalyRecord) -> None:
        said = f"{anomaly.kind[:64]} step {anomaly.step}"
        self.line = replace(self.line, anomalies=self.line.anomalies + 1, anomaly=said)


def _mean(ns: deque[int]) -> int | None:
    return sum(ns) // len(ns) if ns else None


class JobView:
    """Of one process, in the channel's thread but for ``rank_steps``.

    ``hangs``: told last.  ``parts``: returns what takes the batches of each tracer.
    """

    def __init__(
        self,
        channel: Channel,
        hangs: Mapping[int, str],
        parts: Callable[[], Collection[RankSteps]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._channel = channel
        self._hangs = hangs
        self._clock = clock
        self._interval_s = interval_s(channel.world_size)
        # All hosts within one second, by their wall clocks: what comes together costs the hub less.
        self._next_s = clock() - time.time() % self._interval_s + random.random() * _TICK_S
        self._parts = parts
        self._gatherer = Gatherer()
        self._job = JobSteps(channel.world_size, clock)
        channel.report_handlers[STEPS] = self._take
        channel.control_handlers[LOOK] = self.look
        channel.every(_TICK_S / 2, self._tick)

    def rank_steps(
        self, clock_offset: ClockOffset, push: Callable[[JobStepRecord], None]
    ) -> RankSteps:
        """Return what takes the batches of a further tracer; safe from any thread.

        ``push``: takes records of its models over the job, at the hub.
        """
        used = {part.number for part in self._parts()}
        number = next(n for n in range(1, len(used) + 2) if n not in used)
        return RankSteps(self._gatherer, clock_offset, push, self._channel.world_size, number)

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
                for part in self._parts():
                    if part.knows(record.model):
                        part.push(record)
