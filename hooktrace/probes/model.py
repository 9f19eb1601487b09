"""The probes of one model: agreement, schedule, group, put together when a step asks for them.

``ModelState.probe_step`` is the next step at which ``enter`` has anything to do; every other call
of the hook costs one comparison.

The ranks know their models by hook, ranks, and the first bucket's shapes, and models that agree in
all of these by their order.  So where one of several such models was traced on some ranks only,
those after it are not probed.
"""

from __future__ import annotations

import itertools
import logging
import sys
import zlib
from collections import Counter
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore

from ..layout import BucketSlot, GradBucketLike
from .agreement import NEVER, Agreement
from .probe import Digests, Outcome, Probe, ReferenceGroup, Sink
from .schedule import Schedule

__all__ = ["OFF", "ModelProbes"]

logger = logging.getLogger("hooktrace")

OFF = sys.maxsize
"""No step is ever as late as this."""

_WARN_STEP = 64
_TIMEOUT = timedelta(seconds=60)
"""After which a rank that does not come to a probe no longer holds up the others' backward pass."""

_agreements: Counter[str] = Counter()
_groups = itertools.count()


class ModelProbes:
    """Decides for each bucket of a step that ``ModelState.probe_step`` names."""

    def __init__(
        self,
        group: dist.ProcessGroup,
        slot: BucketSlot,
        every: int,
        *,
        all_buckets: bool,
        local: bool,
    ) -> None:
        store: Any = dist.distributed_c10d._get_default_store()
        ranks = dist.get_process_group_ranks(group)
        shapes = [shape for _, shape in slot.parameters]
        signature = zlib.crc32(repr((ranks, slot.model.hook, slot.dtype, shapes)).encode())
        key = f"hooktrace/probes/{signature:08x}"
        # Two models that look alike begin in the same order on all ranks.
        _agreements[key] += 1
        key += f"/{_agreements[key]}"
        self._rank, self._size = group.rank(), group.size()
        self._store = PrefixStore(f"{key}/group", store)
        self._agreement = Agreement(store, key, self._rank, self._size, every)
        self._every = every
        self._local = local
        self._all_buckets = all_buckets
        self._schedule: Schedule | None = None
        self._group: ReferenceGroup | None = None
        self._digests = Digests(-1, {})
        self._stopped = False
        slot.model.probe_step = self._agreement.next_step

    def enter(
        self, slot: BucketSlot, step: int, bucket: GradBucketLike, sink: Sink
    ) -> Probe | None:
        """Return the probe for a bucket of a step at or after ``probe_step``, if it is probed."""
        model = slot.model
        if self._schedule is None:
            self._prepare(slot, step)
        if self._schedule is None or self._group is None or step < model.probe_step:
            return None
        probe = None
        if self._schedule.takes(step, slot.index, len(model.slots)):
            probe = self._probe(slot, step, bucket, sink, self._group)
        if slot.is_last and not self._stopped:
            model.probe_step = self._schedule.next_after(step)
        return probe

    def _probe(
        self,
        slot: BucketSlot,
        step: int,
        bucket: GradBucketLike,
        sink: Sink,
        group: ReferenceGroup,
    ) -> Probe | None:
        before = None
        if self._digests.step != step:
            before, self._digests = self._digests, Digests(step, {})
        outcome = Outcome(slot, step, self._rank, self._local, before=before)
        try:
            return Probe(bucket, outcome, group, sink, digests=self._digests, stop=self.stop)
        except Exception as error:  # no memory for a copy: not training's trouble
            self.stop(slot, f"{type(error).__name__}: {error}")
            return None

    def stop(self, slot: BucketSlot, why: str) -> None:
        """Probe no more, and say why; ranks that go on wait for this one once, and stop too."""
        self._stopped = True
        slot.model.probe_step = OFF
        logger.warning(
            "compression error of %s is no longer measured: %s; training goes on",
            slot.model.name,
            why,
        )

    def _prepare(self, slot: BucketSlot, step: int) -> None:
        """Ask for the meeting, or go to it when its step has come."""
        agreement, model = self._agreement, slot.model
        if agreement.meeting is None:
            agreement.ask(step)
        if agreement.meeting is None:
            model.probe_step = agreement.next_step
            if step == _WARN_STEP:
                logger.warning(
                    "compression error of %s is not measured: rank(s) %s do not trace it; "
                    "trace on all ranks, or pass Tracer(error_every=0)",
                    model.name,
                    ", ".join(map(str, agreement.missing())),
                )
        elif agreement.meeting == NEVER:
            self.stop(slot, "the ranks' tracers differ in error_every; give all of them the same")
        elif step < agreement.meeting:
            model.probe_step = agreement.meeting
        else:
            self._meet(slot, step)

    def _meet(self, slot: BucketSlot, step: int) -> None:
        try:
            self._group = ReferenceGroup(self._store, self._rank, self._size, _TIMEOUT)
            last = self._group.latest(step)
        except RuntimeError as error:
            self.stop(slot, f"the ranks did not meet ({error})")
            return
        self._schedule = Schedule(
            (last // self._every + 1) * self._every, self._every, all_buckets=self._all_buckets
        )
        slot.model.probe_step = self._schedule.next_after(step)
