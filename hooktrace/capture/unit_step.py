"""What a sharded model puts into the ring: whole steps, and what is left out of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .calls import BucketCall


class SurplusCall(NamedTuple):
    """In the ring, stands for a call of a step that has ``MOST_CALLS`` already."""

    model: str


class UnitStep(list[BucketCall]):
    """The calls of one step of a sharded model, in the order in which they began.

    ``complete``: the backward pass came to its end, and all of its calls are here.
    """

    def __init__(self, calls: Sequence[BucketCall], generation: int, *, complete: bool) -> None:
        super().__init__(calls)
        self.generation = generation
        self.complete = complete
