"""What a sharded model's steps are made of: places, calls, and what goes to the ring of them.

a unit's place --slot--> UnitCall --> UnitStep, whole --> ring
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import torch

from ..records.bucket import UnitCollective
from .buckets import BucketSlot
from .calls import BucketCall
from .device_call import give_back

if TYPE_CHECKING:
    from ..tracing.assembler import Assembler

Phase = Literal["forward", "backward"]


class UnitPlace:
    """Where in a step a unit has collectives of a kind, and the slots of those that it had there.

    ``turn``: of the last one in ``step``.
    """

    __slots__ = ("collective", "phase", "slots", "step", "turn")

    def __init__(self, collective: UnitCollective, phase: Phase) -> None:
        self.collective = collective
        self.phase = phase
        self.step = self.turn = -1
        self.slots: dict[tuple[int, int, torch.dtype, int], BucketSlot] = {}
        """By turn, size, dtype and group."""


class UnitCall(BucketCall):
    """A unit's call on the host, with slots for what each of them sets beside a bucket's stamps.

    In its ``__dict__`` they would be a block of memory more, which is there until the step is over.
    ``ShardedModel.begin`` sets all of them after the constructor, since one of its own would be a
    function call more for each collective.
    """

    __slots__ = ("bare", "exposed", "only", "order")


class UnitStep(list[BucketCall]):
    """The calls of one step of a sharded model, in the order in which they began.

    ``complete``: the backward pass came to its end, and all of its calls are here.
    """

    def __init__(self, calls: Sequence[BucketCall], generation: int, *, complete: bool) -> None:
        super().__init__(calls)
        self.generation = generation
        self.complete = complete

    def assemble(self, into: Assembler) -> None:
        """Become a step's records."""
        into.add_units(self)

    def let_go(self) -> None:
        """Give the calls' events back to their pool: nobody reads them any more."""
        give_back(self)
