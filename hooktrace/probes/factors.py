"""Whether the results of several probes are one and the same multiple of the average.

    Cause of each probe --FactorRun.add--> Held of every bucket of the run, once it is named

One probe cannot tell a wrong divisor from clipping, whose factor changes with the gradients; probes
of three steps can.  1/n and n are numbers that clipping does not meet three times in a row.  Any
other factor may be clipping's where the gradients stay as they are, so that it is only named once
the norm of a bucket's average has moved by far more than the factors may differ.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ..capture.buckets import BucketSlot
from .weights import Cause

_STEPS = 3
_MOVED = 20


class Held(NamedTuple):
    """A probed bucket of which a factor is known; ``norm``: of the average, the whole bucket's."""

    slot: BucketSlot
    step: int
    time_ns: int
    cause: Cause
    norm: float


class FactorRun:
    """The probes of one model, as long as one factor explains them all."""

    def __init__(self) -> None:
        self._restart()

    def _restart(self) -> None:
        self._low, self._high = -math.inf, math.inf
        self._steps: set[int] = set()
        self._moved = False
        self._kind = ""
        self._held: dict[BucketSlot, Held] = {}
        self._norms: dict[BucketSlot, float] = {}

    def add(self, held: Held) -> None:
        """Take one probe; of a cause that has no factor of the average it ends the run."""
        cause = held.cause
        if cause.kind == "unknown":
            return
        if cause.kind != "factor":
            self._restart()
            return
        low, high = cause.factor - cause.tolerance, cause.factor + cause.tolerance
        if low > self._high or high < self._low or not math.isfinite(held.norm):
            self._restart()
        self._low, self._high = max(low, self._low), min(high, self._high)
        if len(self._steps) < _STEPS:
            self._steps.add(held.step)
        self._held.setdefault(held.slot, held)
        before = self._norms.setdefault(held.slot, held.norm)
        change = abs(held.norm - before) * abs(cause.factor)
        self._moved = self._moved or change > _MOVED * cause.tolerance * before

    def named(self, size: int) -> tuple[str, list[Held]]:
        """Return the factor's name and the probes to be told of, each once; none while unknown."""
        self._kind = self._kind or self._name(size)
        if not self._kind:
            return "", []
        held, self._held = list(self._held.values()), {}
        return self._kind, held

    def _name(self, size: int) -> str:
        if len(self._steps) < _STEPS:
            return ""
        if self._low <= size <= self._high:
            return "not_averaged"
        sure = all(one.cause.sure for one in self._held.values())
        if sure and self._low <= 1 / size <= self._high:
            return "averaged_twice"
        return "wrong_scale" if self._moved else ""
