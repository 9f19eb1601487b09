"""How two runs differ in one number a step, with an interval: a pure function.

    Series of both --difference--> Difference, by run/bootstrap.py

An interval is about these two runs: how much another run of the same set-up would be off, on a
machine that does other things beside, no number of steps can tell.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec
import numpy as np

from ..run import bootstrap
from ..run.bootstrap import FEWEST_STEPS, Estimates
from ..run.columns import Floats
from ..run.dense import known

Verdict = Literal["differs", "same", "not shown", "unknown"]


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """What ``a`` and ``b`` are, and ``difference``, b - a, from ``low`` to ``high`` (95 %).

    ``share``: of ``a``.  ``verdict``: *differs* where the interval does not hold 0, *same* where
    both are one constant, *unknown* for the reason ``why``, else *not shown* (to differ):
    for a reason only where the interval holds no 0, but the halves of a run differ by more.
    """

    a: float | None
    b: float | None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    share: float | None = None
    verdict: Verdict
    why: str | None = None

    @property
    def differs(self) -> bool:
        """Whether the two are shown to differ."""
        return self.verdict == "differs"

    @property
    def drifts(self) -> bool:
        """Whether they would be, if the halves of a run did not differ by more."""
        return self.verdict == "not shown" and self.why is not None

    @property
    def apart(self) -> float:
        """The difference in ns, 0 where it is not known."""
        return self.difference or 0.0


class Series(NamedTuple):
    """A number of each step of a run, and by what the steps are ordered; both (steps,).

    ``share``: of the ordered steps that the estimate is a mean of, as in ``bootstrap``.
    """

    values: Floats
    order: Floats
    share: float

    def estimate(self) -> float:
        """Return what ``bootstrap.estimate`` does; NaN of no steps."""
        if not len(self.values):
            return float("nan")
        return float(bootstrap.estimate(self.values[:, None], self.order, self.share)[0])

    def drift(self) -> float:
        """Return by how much the estimates of the two halves differ."""
        at = len(self.values) // 2
        halves = (
            Series(self.values[x], self.order[x], self.share) for x in (np.s_[:at], np.s_[at:])
        )
        first, second = (half.estimate() for half in halves)
        return abs(second - first)

    def resampled(self, seed: int, draws: int) -> Estimates:
        """Return the estimates of resamples in blocks as long as values and order ask for."""
        length = max(map(bootstrap.block_length, (self.values, self.order)))
        return bootstrap.resampled(
            self.values[:, None], self.order, self.share, length=length, seed=seed, draws=draws
        )


def difference(a: Series, b: Series) -> Difference:
    """Return the difference of a number of two runs."""
    fewest, x, y = min(len(a.values), len(b.values)), a.estimate(), b.estimate()
    low = high = why = None
    verdict: Verdict = "unknown"
    if fewest and not np.ptp(a.values) and not np.ptp(b.values):
        x, y = float(a.values[0]), float(b.values[0])
        low = high = y - x
        verdict = "same" if x == y else "differs"
    elif fewest < FEWEST_STEPS:
        why = f"{fewest} steps are too few to tell how they vary; {FEWEST_STEPS} are needed"
        why = why if fewest else "one of the runs has no such number"
    else:
        draws = bootstrap.draws_for(max(len(a.values), len(b.values)))
        drawn = [one.resampled(seed, draws) for seed, one in enumerate((a, b))]
        _, (low,), (high,) = (ends.tolist() for ends in bootstrap.interval(*drawn))
        verdict = "not shown" if low <= 0 <= high else "differs"
        if verdict == "differs" and max(a.drift(), b.drift()) > abs(y - x):
            verdict = "not shown"
            why = "the halves of one run differ by more than the runs do"
    return Difference(
        a=known(x), b=known(y), difference=known(y - x), low=low, high=high,
        share=known((y - x) / x) if x else None, verdict=verdict, why=why,
    )  # fmt: skip
