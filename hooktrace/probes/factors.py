"""Whether the results of several probes are all n times the average, or all one nth of it.

    Cause of each probe --FactorRun.add--> Held of every bucket of the run, once it is named

One probe cannot tell a wrong divisor from clipping, whose factor changes with the gradients; probes
of three steps can: n and 1/n are numbers that clipping does not meet three times in a row.
"""

from __future__ import annotations

from typing import NamedTuple

from ..staging.slots import BucketSlot
from .weights import Cause

_STEPS = 3


def named_factors(divisor: float) -> dict[str, float]:
    """Return how many times too large a result is that mistakes its divisor, by kind of anomaly.

    ``divisor``: that of the sum, the number of ranks for an average.
    """
    return {"not_averaged": divisor, "averaged_twice": 1 / divisor}


class Held(NamedTuple):
    """A checked bucket of which it is known what its result is."""

    slot: BucketSlot
    step: int
    time_ns: int
    cause: Cause


class FactorRun:
    """The probes of one model, as long as one of the named factors explains them all."""

    def __init__(self) -> None:
        self._begin("")

    def _begin(self, kind: str) -> None:
        self._kind, self._steps, self._latest = kind, 0, -1
        self._held: dict[BucketSlot, Held] = {}
        self._known: set[BucketSlot] = set()

    def add(self, held: Held, size: int) -> None:
        """Take one probe on ``size`` ranks; a cause that is no such factor ends the run.

        One that tells nothing does not, nor does loss that hides what is done to another bucket.
        """
        cause = held.cause
        is_lossy = cause.kind == "other" and cause.factor != 0
        if cause.kind == "unknown" or (is_lossy and held.slot not in self._known):
            return
        kind = _kind_of(cause, size)
        if not kind or kind != self._kind:
            self._begin(kind)
        if not kind:
            return
        self._steps += held.step > self._latest
        self._latest = max(self._latest, held.step)
        self._known.add(held.slot)
        self._held.setdefault(held.slot, held)

    def named(self) -> tuple[str, list[Held]]:
        """Return the factor's name and the probes to be told of, each once; none while unknown."""
        if self._steps < _STEPS:
            return "", []
        held, self._held = list(self._held.values()), {}
        return self._kind, held


def _kind_of(cause: Cause, size: int) -> str:
    """Return what one probe's factor is called; "" where it has no name, or may be another."""
    if cause.kind != "factor":
        return ""
    for kind, factor in named_factors(size).items():
        # One nth may also be one rank's gradient over n, where the ranks are alike.
        if abs(cause.factor - factor) <= cause.tight and (cause.sure or kind == "not_averaged"):
            return kind
    return ""
