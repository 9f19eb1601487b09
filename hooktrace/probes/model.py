"""The probes of one model: agreement, schedule, group, put together when a step asks for them.

A failure ends a round of probes, on all ranks: one that has failed alone closes its connections, so
that nobody waits for it, and says so in the store.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from ..ranks.private_group import PrivateGroup, made_unless
from ..staging.groups import group_timeout
from ..staging.job import job_store, rendezvous_store
from ..staging.ring import Loss
from ..staging.slots import BucketSlot
from .agreement import NEVER, Agreement, Consent, key_of, known_of
from .device_group import DeviceGroup
from .probe import Probe
from .probe_result import ProbeResult, StepChecksums
from .schedule import OFF, Schedule
from .step_sampler import CallStart, Part

if TYPE_CHECKING:
    from ..tracing.tracer import Tracer

logger = logging.getLogger("hooktrace")

_WARN_STEP = 64
_TIMEOUT = timedelta(seconds=60)
"""After which a rank that does not come to a probe no longer holds up the others' backward pass; at
most a quarter of the process group's own."""

_FAILURES = 3
"""After as many failures one after another, with no probe between them, the probes end."""


class ModelProbes(Part):
    """Decides for each bucket of a step from ``next_step`` on whether it is probed.

    A failure ends a round of probes.  Its group is let go of, and the ranks meet again on a new
    one, so that nothing of the old one can pair up with what comes.
    """

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
        self._key = key_of("probes", known_of(self._ranks, slot, parameters))
        first = slot.model.first_step
        self._wish = (
            f"error_every={every}, error_all_buckets={all_buckets}, local={local}, "
            f"first_step={first}"
        )
        self._timeout = min(_TIMEOUT, group_timeout(group) / 4)
        self._every, self._all_buckets, self._local = every, all_buckets, local
        self._burst = 0
        self._lock = threading.Lock()
        self._failures = 0
        self._stopped = False
        on_device = slot.device_type != "cpu"
        self._device_group = DeviceGroup(group, slot.device) if on_device else None
        self._begin_round(0, first)

    def _begin_round(self, number: int, start: int) -> None:
        self._agreement = Agreement(
            job_store(),
            self._key,
            self._rank,
            self._size,
            self._wish,
            number=number,
            start=start,
        )
        if number:
            self._burst = self._agreement.burst(self._burst)
        self._number = number
        self._over = False
        self._group: PrivateGroup | DeviceGroup | None = None
        self._connections: PrivateGroup | None = None
        self._consent: Consent | None = None
        self._checksums = StepChecksums(-1, {})
        self._schedule = Schedule(OFF, self._every, self._all_buckets, self._burst)
        self.next_step = self._agreement.next_step

    def enter(self, start: CallStart, sink: Tracer) -> bool:
        """Probe a bucket, if it is its turn, or go on with the agreement that comes before.

        Raises nothing: whatever goes wrong here is the probes' trouble, and not training's.
        """
        if self._stopped:
            self.next_step = OFF
            return False
        ended = functools.partial(self._ended, self._number, start.slot, start.step, sink)
        begins = self._over
        try:
            return self._enter(start, sink, ended)
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            if begins:  # not even the next round could
                self._stop(start.slot, why)
            else:
                ended(why)
            return True  # it may have waited for other ranks

    def _enter(self, start: CallStart, sink: Tracer, ended: Callable[[str | None], None]) -> bool:
        slot, step = start.slot, start.step
        if self._over:
            self._close()
            self._begin_round(*self._agreement.next_round(step))
            return True
        if self._group is None:
            self._prepare(slot, step)
            return True
        is_probed = self._schedule.takes(step, slot.index, len(slot.model.slots))
        if is_probed:
            if self._agreement.is_over():
                self._over = True
                return True
            probed = ProbeResult(
                slot=slot,
                step=step,
                rank=self._rank,
                ranks=self._ranks,
                local=self._local,
                ready=start.ready,
                before=self._turn_to(step),
            )
            probe = Probe(start, probed, self._group, sink, checksums=self._checksums, ended=ended)
            if not self._all_are_here(slot, step):
                ended("the ranks were not all at the same bucket of the same step")
                return True
            probe.issue()
            start.looks.append(probe)
        if slot.is_last:
            self._pass(step)
        return is_probed

    def _pass(self, step: int) -> None:
        """Go on to the next probed step, unless something else was asked for meanwhile."""
        with self._lock:
            if not self._over:
                self.next_step = self._schedule.next_after(step)
                if step + 1 >= self._schedule.first + self._schedule.burst:
                    self._burst = 0

    def _all_are_here(self, slot: BucketSlot, step: int) -> bool:
        """Return whether to issue the reference; on a device it is every rank or none."""
        if self._consent is None or self._device_group is None:
            return True
        place, issued = f"{step}/{slot.index}", self._device_group.issued()
        return self._consent.given(place, issued, self._timeout, self._agreement.is_over)

    def _turn_to(self, step: int) -> StepChecksums | None:
        """Begin a probed step; return the checksums of the one before at its first probe."""
        if self._checksums.step == step:
            return None
        before, self._checksums = self._checksums, StepChecksums(step, {})
        return before

    def _ended(
        self, number: int, slot: BucketSlot, step: int, sink: Tracer, why: str | None
    ) -> None:
        """Take note of how a probe of a round ended, ``why`` it failed if it did.  Any thread."""
        with self._lock:
            if number != self._number or self._over or self._stopped:
                return
            self._over = why is not None
            self._failures = self._failures + 1 if self._over else 0
        if why is None:
            return
        sink.push(Loss("probe_failed", why))
        self._close()
        if self._failures == _FAILURES:
            self._stop(slot, f"{_FAILURES} checks failed one after another, the last by {why}")
        else:
            self._tell(lambda: self._agreement.end(step))

    def replan(self, burst: int, step: int) -> bool:
        """End the round; in the next one the first rank to come says how long the burst is.

        Asks the store.
        """
        with self._lock:
            if self._stopped:
                return False
            self._burst = burst
            self._over, self.next_step = True, 0
        self._tell(lambda: self._agreement.end_newest(step))
        return True

    def _stop(self, slot: BucketSlot, why: str) -> None:
        """Probe no more, and say why."""
        if not self._stopped:
            self.leave()
            logger.warning(
                "compression error of %s is no longer measured: %s; training goes on",
                slot.model.name,
                why,
            )

    def miss(self, slot: BucketSlot, step: int, sink: Tracer) -> None:
        """End the round where the other ranks probe or meet at a call that is not looked at.

        On a device that is most often a graph's capture, which all ranks are at.
        """
        if self._device_group is not None:
            return
        meeting = self._agreement.meeting
        if self._group is None:
            is_due = meeting is not None and step >= meeting != NEVER
        else:
            is_due = self._schedule.takes(step, slot.index, len(slot.model.slots))
        if is_due:
            self._ended(self._number, slot, step, sink, "a call could not be stamped")

    def leave(self) -> None:
        """Probe no more, and let the other ranks know before their next probe."""
        if not self._stopped:
            self._stopped, self.next_step = True, OFF
            self._tell(self._agreement.leave)
            self._close()

    def _close(self) -> None:
        """Let what other ranks wait for on the round's own connections fail."""
        if self._connections is not None:
            self._connections.close()

    def begin_in_child(self) -> None:
        """Probe no more; the store's connection and the group's threads are the parent's."""
        self._stopped, self.next_step = True, OFF
        if self._connections is not None:
            self._connections.leave_with_parent()

    def _tell(self, request: Callable[[], object]) -> None:
        try:
            request()
        except RuntimeError:
            logger.debug("the store is gone, and the other ranks with it")

    def _prepare(self, slot: BucketSlot, step: int) -> None:
        """Ask for the meeting, or go to it when its step has come."""
        agreement = self._agreement
        if agreement.meeting is None:
            agreement.ask(step)
        meeting, left = agreement.meeting, agreement.has_left()
        if left is not None:
            who = self._ranks[left]
            self._stop(slot, f"rank {who} has closed its tracer, or its log says why it stopped")
        elif meeting is None and self._number and agreement.is_over():
            self._over = True
        elif meeting is None:
            self.next_step = agreement.next_step
            if step == _WARN_STEP:
                self._warn_of_missing(slot)
        elif meeting == NEVER:
            wishes = agreement.difference()
            self._stop(slot, f"the ranks want different checks, {wishes}; give all the same")
        elif step < meeting:
            self.next_step = meeting
        elif agreement.is_over():
            self._over = True
        else:
            self._meet(step)

    def _warn_of_missing(self, slot: BucketSlot) -> None:
        logger.warning(
            "compression error of %s is not measured: rank(s) %s offer no checks of it; trace it "
            "on all ranks, with the same options, or pass Tracer(error_every=0)",
            slot.model.name,
            ", ".join(str(self._ranks[place]) for place in self._agreement.missing()),
        )

    def _meet(self, step: int) -> None:
        prefix = f"{self._key}/{self._number}"
        group = made_unless(
            self._agreement.is_over,
            lambda: PrivateGroup(f"{prefix}/group", self._rank, self._size, self._timeout),
        )
        last = group.latest(step)
        # After a failure at other steps than before: what held a rank up may come as regularly.
        first = last + 1 if self._number else Schedule(0, self._every).next_after(last)
        self._schedule.first = first
        self.next_step = self._schedule.next_after(first - 1)
        if self._device_group is None:
            self._group = self._connections = group
        else:
            self._group = self._device_group
            store = rendezvous_store(f"{prefix}/consent")
            self._consent = Consent(store, "at", self._size, cleans=self._rank == 0)
