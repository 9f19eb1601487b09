"""The probes of a DDP model's buckets: each is compared with the lossless average of all ranks.

    bucket's turn --Probe: all memory--> all ranks are here (plan.py) --> reference issued, compared

    on CPUs      a group of hooktrace's own, which the ranks make when they are first together; all
                 of it aside: meanwhile the backward pass issues its other buckets
    on a device  the hook's own group, in whose order the reference has its place

A rank whose probe fails closes its connections, so that nobody waits for it; at the next place all
see that it has none, and at the one after it they make new ones.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, TypeAlias

import torch
import torch.distributed as dist

from ..ranks.native_calls import call_aside
from ..ranks.private_group import PrivateGroup, made_unless
from ..staging.groups import group_timeout
from ..staging.job import current_rank
from ..staging.ring import Loss
from ..staging.slots import BucketSlot
from .agreement import key_of, known_of
from .compare import has_parts
from .device_group import DeviceGroup
from .plan import ProbePlan, Ranks
from .probe import Probe
from .probe_result import ProbeResult, StepChecksums
from .schedule import OFF
from .step_sampler import CallStart

if TYPE_CHECKING:
    from ..tracing.tracer import Tracer

_TIMEOUT = timedelta(seconds=60)
"""Of a probe's own collectives, for which DDP's result waits; at most a quarter of the process
group's own."""

_FAILURES = 3
"""After as many failures one after another, with no probe between them, the probes end."""

Ended: TypeAlias = Callable[[str | None], None]
"""Told how a probe ended: why it failed, or ``None``."""


class ModelProbes(ProbePlan):
    """Probes the buckets of one model whose turn it is."""

    def __init__(
        self,
        group: dist.ProcessGroup,
        slot: BucketSlot,
        parameters: list[torch.Tensor],
        tracer: Tracer,
        *,
        local: bool,
    ) -> None:
        self._ranks = Ranks.of(group)
        key = key_of("probes", known_of(self._ranks.numbers, slot, parameters))
        super().__init__(slot.model, key, tracer, f", local={local}")
        self._key = key
        self._rank, self._local = group.rank(), local
        self._timeout = min(_TIMEOUT, group_timeout(group) / 4)
        self._device = DeviceGroup(group, slot.device) if slot.device_type != "cpu" else None
        self._connections: PrivateGroup | None = None
        self._since = ""
        """The place from which on no probe has failed; "" after one has, on this rank."""
        self._last: threading.Event | None = None
        """Set once all that was to be done aside is done."""
        self._lock = threading.RLock()  # a signal's handler may close the tracer here
        self._failures = 0
        self._checksums = StepChecksums(-1, {})
        self.next_step = self._schedule.first

    def enter(self, start: CallStart, sink: Tracer) -> bool:
        """Probe a bucket, if it is its turn.

        Raises nothing: whatever goes wrong here is the probes' trouble, and not training's.
        """
        slot, step = start.slot, start.step
        is_due = has_parts(slot) and self.takes(step, slot.index, len(slot.model.slots))
        if is_due:
            ended = functools.partial(self._ended, sink, self._failures)
            try:
                probe = Probe(start, self._result_of(start), sink, self._checksums, ended)
            except Exception as error:
                self._fail(step, slot.index, ended, error)
            else:
                start.looks.append(probe)
                issue = probe.issuer()
                if not self._do(lambda: self._go(step, slot.index, probe, issue, ended)):
                    probe.drop()
                    ended("no thread could be started")
        schedule = None
        while slot.is_last and schedule is not self._schedule:  # which another thread may replace
            schedule = self._schedule
            self.next_step = schedule.next_after(step)
        if self._over:
            self.next_step = OFF
        return is_due

    def _result_of(self, start: CallStart) -> ProbeResult:
        before = None
        if self._checksums.step != start.step:  # at a step's first probe: of the one before
            before, self._checksums = self._checksums, StepChecksums(start.step, {})
        return ProbeResult(
            slot=start.slot,
            step=start.step,
            rank=self._rank,
            ranks=self._ranks.numbers,
            local=self._local,
            ready=start.ready,
            before=before,
        )

    def _do(self, work: Callable[[], None]) -> bool:
        """Do some work that waits for other ranks: on a device now, else aside, in this order.

        A device's reference has its place between the hook's collectives.  Returns false where the
        system gives no thread.
        """
        if self._device is not None:
            work()
            return True
        over = threading.Event()
        with suppress(RuntimeError):
            call_aside(functools.partial(_in_order, self._last, work, over), "hooktrace-probe")
            self._last = over
        return self._last is over

    def _go(
        self,
        step: int,
        index: int,
        probe: Probe,
        issue: Callable[[PrivateGroup | DeviceGroup], None],
        ended: Ended,
    ) -> None:
        """Issue a probe's reference, if all ranks do."""
        place = f"{step}/{index}"
        try:
            issued = 0 if self._device is None else self._device.issued()
            with self._lock:
                since, connections = self._since, self._connections
            if self.all_are_here(step, index, self._ranks, f"{issued} since {since}"):
                issue(self._device or connections or self._connected(place))
                with self._lock:
                    if self._since == since:  # else a check has failed meanwhile
                        self._since = since or place
                return
            self._begin_anew()
        except Exception as error:
            self._fail(step, index, ended, error)
        probe.drop()

    def _fail(self, step: int, index: int, ended: Ended, error: Exception) -> None:
        why = f"{type(error).__name__}: {error}"
        told = f"rank {current_rank()}: {why}"
        self._do(lambda: self.decline(step, index, self._ranks, told))
        ended(why)

    def _connected(self, place: str) -> PrivateGroup:
        """Return the ranks' own connections, which they make at a place where all of them are."""
        size, name = len(self._ranks.numbers), f"{self._key}/group/{place}"
        consent = self.consent(self._ranks)
        made = made_unless(
            lambda: self._over or consent.is_refused(place),
            lambda: PrivateGroup(name, self._rank, size, self._timeout),
        )
        with self._lock:
            self._connections = made
        if self._over:
            self._begin_anew()
        return made

    def _begin_anew(self) -> None:
        """Let what other ranks wait for on the connections fail, and be as before any probe."""
        with self._lock:
            connections, self._connections, self._since = self._connections, None, ""
        if connections is not None:
            connections.close()

    def _ended(self, sink: Tracer, before: int, why: str | None) -> None:
        """Take note of how a probe ended, ``why`` it failed if it did.  Any thread.

        ``before``: the failures when it began; of probes that fail together one counts.
        """
        with self._lock:
            counts = not self._over and before == self._failures
            if counts:
                self._failures = 0 if why is None else before + 1
        if why is None:
            return
        sink.push(Loss("check_failed", why))
        if not counts:
            return
        self._begin_anew()
        if self._failures == _FAILURES:
            self.end(f"{_FAILURES} checks failed one after another, the last by {why}")

    def miss(self, slot: BucketSlot, step: int, sink: Tracer) -> None:
        """Have nobody wait at a call that is not looked at here."""
        if has_parts(slot) and self.takes(step, slot.index, len(slot.model.slots)):
            why = f"rank {current_rank()}: recorded no call of it; trace the same steps on all"
            self._do(lambda: self.decline(step, slot.index, self._ranks, why))
            self._do(self._begin_anew)

    def replan(self, first: int, number: int) -> bool:
        """Probe the ``number`` steps from ``first`` on, too."""
        is_on = super().replan(first, number)
        self.next_step = min(self.next_step, first)
        return is_on

    def leave(self) -> None:
        """Probe no more, and let the other ranks know before their next probe."""
        super().leave()
        self._begin_anew()

    def end(self, why: str) -> None:
        """Probe no more, and say why."""
        super().end(why)
        self._begin_anew()

    def begin_in_child(self) -> None:
        """Probe no more; the store's connection and the group's threads are the parent's."""
        super().begin_in_child()
        self._last, self._lock = None, threading.RLock()
        if self._connections is not None:
            self._connections.leave_with_parent()


def _in_order(
    before: threading.Event | None, work: Callable[[], None], over: threading.Event
) -> None:
    """Do some work when that before it is done."""
    if before is not None:
        before.wait()
    try:
        work()
    finally:
        over.set()
