"""The probes of one model: agreement, schedule, group, put together when a step asks for them.

The ranks know a model by its hook, its ranks, its first bucket's shapes and some of its values,
which DDP has made equal everywhere, and models that agree in all of these by their order.
"""

from __future__ import annotations

import logging
import zlib
from collections import Counter
from datetime import timedelta

import torch
import torch.distributed as dist

from ..capture.buckets import BucketSlot
from ..ranks.job import job_store, restart_count
from ..ranks.private_group import PrivateGroup
from ..staging.groups import group_timeout
from .probe import Probe
from .probe_result import ProbeResult, StepChecksums
from .schedule import NEVER, OFF, Agreement, Schedule
from .step_sampler import CallStart, Part, Sink

logger = logging.getLogger("hooktrace")

_WARN_STEP = 64
_TIMEOUT = timedelta(seconds=60)
"""After which a rank that does not come to a probe no longer holds up the others' backward pass; at
most a quarter of the process group's own."""

_VALUES = 16

_agreements: Counter[str] = Counter()


class ModelProbes(Part):
    """Decides for each bucket of a step from ``next_step`` on whether it is probed."""

    def __init__(
        self,
        group: dist.ProcessGroup,
        slot: BucketSlot,
        parameters: list[torch.Tensor],
        every: int,
        *,
        all_buckets: bool,
        local: bool,
    ) -> None:
        self._rank, self._size = group.rank(), group.size()
        self._ranks = tuple(dist.get_process_group_ranks(group))
        key = f"hooktrace/probes/{restart_count()}/{_signature(self._ranks, slot, parameters):08x}"
        # Two models that are alike in all this begin in the same order on all ranks.
        _agreements[key] += 1
        self._key = f"{key}/{_agreements[key]}"
        self._timeout = min(_TIMEOUT, group_timeout(group) / 4)
        self._agreement = Agreement(job_store(), self._key, self._rank, self._size, every)
        self._local = local
        self._schedule = Schedule(OFF, every, all_buckets)
        self._group: PrivateGroup | None = None
        self._checksums = StepChecksums(-1, {})
        self._stopped = False
        self.next_step = self._agreement.next_step

    def enter(self, start: CallStart, sink: Sink) -> Probe | None:
        """Return the probe for a bucket of a step at or after ``next_step``, if it is probed.

        Raises nothing: whatever goes wrong here ends the probes, and not training.
        """
        try:
            return self._enter(start, sink)
        except Exception as error:
            self.stop(start.slot, f"{type(error).__name__}: {error}")
            return None

    def _enter(self, start: CallStart, sink: Sink) -> Probe | None:
        slot, step = start.slot, start.step
        if self._group is None:
            self._prepare(slot, step)
        if self._group is None or step < self.next_step:
            return None
        probe = None
        if self._schedule.takes(step, slot.index, len(slot.model.slots)):
            if self._agreement.is_off():
                self.stop(slot, "another rank has stopped; its log says why")
                return None
            probed = ProbeResult(slot, step, self._rank, self._local, ready=start.ready)
            probed.ranks = self._ranks
            probed.before = self._turn_to(step)
            probe = Probe(
                start, probed, self._group, sink, checksums=self._checksums, stop=self.stop
            )
        if slot.is_last and not self._stopped:
            self.next_step = self._schedule.next_after(step)
        return probe

    def _turn_to(self, step: int) -> StepChecksums | None:
        """Begin a probed step; return the checksums of the one before at its first probe."""
        if self._checksums.step == step:
            return None
        before, self._checksums = self._checksums, StepChecksums(step, {})
        return before

    def stop(self, slot: BucketSlot, why: str) -> None:
        """Probe no more, say why, and let the other ranks know before their next probe."""
        self.next_step = OFF
        if self._stopped:
            return
        self.leave()
        logger.warning(
            "compression error of %s is no longer measured: %s; training goes on",
            slot.model.name,
            why,
        )

    def leave(self) -> None:
        """Let the other ranks know that this one is probed no more."""
        self._stopped = True
        try:
            self._agreement.withdraw()
        except RuntimeError:
            logger.debug("the store is gone, and the other ranks with it")

    def _prepare(self, slot: BucketSlot, step: int) -> None:
        """Ask for the meeting, or go to it when its step has come."""
        agreement, name = self._agreement, slot.model.name
        if agreement.meeting is None:
            agreement.ask(step)
        if agreement.meeting is None:
            self.next_step = agreement.next_step
            if step == _WARN_STEP:
                logger.warning(
                    "compression error of %s is not measured: rank(s) %s do not trace it; "
                    "trace on all ranks, or pass Tracer(error_every=0)",
                    name,
                    ", ".join(str(self._ranks[place]) for place in agreement.missing()),
                )
        elif agreement.meeting == NEVER:
            self.stop(slot, "the ranks' tracers differ in error_every; give all of them the same")
        elif step < agreement.meeting:
            self.next_step = agreement.meeting
        else:
            self._meet(step)

    def _meet(self, step: int) -> None:
        self._group = PrivateGroup(f"{self._key}/group", self._rank, self._size, self._timeout)
        last, every = self._group.latest(step), self._schedule.every
        self._schedule.first = self.next_step = (last // every + 1) * every


def _signature(ranks: tuple[int, ...], slot: BucketSlot, parameters: list[torch.Tensor]) -> int:
    """Return a number that is the same on all ranks of a model, and no other model's."""
    shapes = [shape for _, shape in slot.parameters]
    values = [p.detach().flatten()[:_VALUES].tolist() for p in parameters]
    return zlib.crc32(repr((ranks, slot.model.hook, slot.dtype, shapes, values)).encode())
