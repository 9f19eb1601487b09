"""Collectives of the job that belong to no bucket of a traced hook."""

from __future__ import annotations

import msgspec

from .base import Count, Ns, Record, Step


class OtherCollective(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One of them; times are host ns.

    ``wire_bytes``: this rank's payload, ``None`` of a tensor without a size.  ``done_ns``: ``None``
    where nobody says when it ended, as on a device.  ``where``: the line of the script that issued
    it (``train.py:57``), "" where there is none.  ``of_ddp``: DDP itself did, for the model's
    buffers or in ``join()``.
    """

    name: str
    wire_bytes: Count | None
    issued_ns: Ns
    done_ns: Ns | None = None
    thread: str
    where: str
    of_ddp: bool = False


class OtherCollectives(Record, frozen=True, kw_only=True, tag="other_collectives"):
    """Those of one process during one sampled step of a model.

    ``time_ns`` to ``until_ns``: from the first bucket of the step to that of the next one, so that
    all between two backward passes is in it.  ``more``, ``more_bytes``: collectives beyond those
    that are listed, and their payload; ``ddp_bytes``: the payload of all that DDP itself issued.
    ``unseen_groups``: process groups of whose collectives hooktrace sees nothing.
    """

    model: str
    step: Step
    time_ns: Ns
    until_ns: Ns
    collectives: tuple[OtherCollective, ...] = ()
    more: Count = 0
    more_bytes: Count = 0
    ddp_bytes: Count = 0
    unseen_groups: Count = 0

    @property
    def wire_bytes(self) -> int | None:
        """Payload of all that are none of DDP's; ``None`` where one has no size."""
        sizes = [one.wire_bytes for one in self.collectives if not one.of_ddp]
        return None if None in sizes else sum(filter(None, sizes)) + self.more_bytes

    @property
    def count(self) -> int:
        """How many are none of DDP's."""
        return sum(not one.of_ddp for one in self.collectives) + self.more
