"""Whether the results of several probes are one and the same multiple of the average.

    Cause of each probe --FactorRun.add--> Held of every bucket of the run, once it is named

One probe cannot tell a wrong divisor from clipping, whose factor changes with the gradients; probes
of three steps can.  1/n and n are numbers that clipping does not meet three times in a row.  Any
other factor s

- may be clipping's where the gradients stay as they are: the norm of a bucket's average must have
  moved by 20 times what the factor may be off;
- may depend on the gradients in another way, and be nearly the same (Adasum's): one that would move
  by a twentieth of |s - 1| is seen within t of the others by chance 20 t / |s - 1|, and the
  product of these over the steps after the first must be below 1e-5.  With 32 bits three steps do;
- is no other than n unless n is ruled out.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ..staging.slots import BucketSlot
from .weights import HARMLESS, Cause

_STEPS = 3
_MOVED = 20
_BY_CHANCE = 1e-5


def named_factors(divisor: float) -> dict[str, float]:
    """Return how many times too large a result is that mistakes its divisor, by kind of anomaly.

    ``divisor``: that of the sum, the number of ranks for an average.
    """
    return {"not_averaged": divisor, "averaged_twice": 1 / divisor}


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
        self._steps, self._latest = 0, -1
        self._chance = 1.0
        self._moved = self._may_be_sum = False
        self._kind = ""
        self._held: dict[BucketSlot, Held] = {}
        self._norms: dict[BucketSlot, float] = {}

    def add(self, held: Held, size: int) -> None:
        """Take one probe on ``size`` ranks; a cause that is no factor of the average ends the run.

        One that tells nothing does not, nor does loss that hides what is done to another bucket.
        """
        cause = held.cause
        is_lossy = cause.kind == "other" and cause.factor != 0
        if cause.kind == "unknown" or (is_lossy and held.slot not in self._norms):
            return
        if cause.kind != "factor" or not math.isfinite(held.norm):
            self._restart()
            return
        low, high = cause.factor - cause.tight, cause.factor + cause.tight
        if low > self._high or high < self._low:
            self._restart()
        self._low, self._high = max(low, self._low), min(high, self._high)
        if held.step > self._latest:
            self._count_step(held)
        self._held.setdefault(held.slot, held)
        before = self._norms.setdefault(held.slot, held.norm)
        change = abs(held.norm - before) * abs(cause.factor)
        self._moved = self._moved or change > _MOVED * cause.tight * before
        far = max(cause.wide, HARMLESS * size)
        self._may_be_sum = self._may_be_sum or abs(cause.factor - size) <= far

    def _count_step(self, held: Held) -> None:
        cause = held.cause
        if self._steps:
            self._chance *= min(1.0, _MOVED * cause.tight / abs(cause.factor - 1))
        self._steps, self._latest = self._steps + 1, held.step

    def named(self, size: int) -> tuple[str, list[Held]]:
        """Return the factor's name and the probes to be told of, each once; none while unknown."""
        self._kind = self._kind or self._name(size)
        if not self._kind:
            return "", []
        held, self._held = list(self._held.values()), {}
        return self._kind, held

    def _name(self, size: int) -> str:
        if self._steps < _STEPS:
            return ""
        found = [k for k, s in named_factors(size).items() if self._low <= s <= self._high]
        sure = all(one.cause.sure for one in self._held.values())
        if found and (sure or found[0] == "not_averaged"):
            return found[0]
        may_be_chance = self._chance > _BY_CHANCE or not self._moved
        return "" if may_be_chance or self._may_be_sum else "wrong_scale"
