"""Whether the results of several probes are all n times the average, or all one nth of it.

    Cause of each probe --FactorRun.add--> anomalies of all buckets of the run, once it is named

One probe cannot tell a wrong divisor from clipping, whose factor changes with the gradients; probes
of three steps can: n and 1/n are numbers that clipping does not meet three times in a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .weights import Cause

if TYPE_CHECKING:
    from ..records import AnomalyRecord
    from ..staging.slots import BucketSlot
    from .probe_result import ProbeResult

_STEPS = 3

_SAID = {
    "not_averaged": "the result is {size} times the average: a sum",
    "averaged_twice": "the result is the average over {size} once more",
}


def named_factors(divisor: float) -> dict[str, float]:
    """Return how many times too large a result is that mistakes its divisor, by kind of anomaly.

    ``divisor``: that of the sum, the number of ranks for an average.
    """
    return {"not_averaged": divisor, "averaged_twice": 1 / divisor}


class FactorRun:
    """The probes of one model, as long as one of the named factors explains them all."""

    def __init__(self) -> None:
        self._begin("")

    def _begin(self, kind: str) -> None:
        self._kind, self._steps, self._latest = kind, 0, -1
        self._untold: dict[BucketSlot, AnomalyRecord] = {}
        self._known: set[BucketSlot] = set()

    def add(self, checked: ProbeResult, cause: Cause, size: int) -> None:
        """Take one probe on ``size`` ranks; a cause that is no such factor ends the run.

        One that tells nothing does not, nor does loss that hides what is done to another bucket.
        """
        slot, step = checked.slot, checked.step
        is_lossy = cause.kind == "other" and cause.factor != 0
        if cause.kind == "unknown" or (is_lossy and slot not in self._known):
            return
        kind = _kind_of(cause, size)
        if not kind or kind != self._kind:
            self._begin(kind)
        if not kind:
            return
        self._steps += step > self._latest
        self._latest = max(self._latest, step)
        self._known.add(slot)
        if slot not in self._untold:
            self._untold[slot] = checked.anomaly(kind, _SAID[kind].format(size=size))

    def named(self) -> list[AnomalyRecord]:
        """Return the anomalies to be told of, each once; none while the factor is not sure."""
        if self._steps < _STEPS:
            return []
        untold, self._untold = list(self._untold.values()), {}
        return untold


def _kind_of(cause: Cause, size: int) -> str:
    """Return what one probe's factor is called; "" where it has no name, or may be another."""
    if cause.kind != "factor":
        return ""
    for kind, factor in named_factors(size).items():
        # One nth may also be one rank's gradient over n, where the ranks are alike.
        if abs(cause.factor - factor) <= cause.tight and (cause.sure or kind == "not_averaged"):
            return kind
    return ""
