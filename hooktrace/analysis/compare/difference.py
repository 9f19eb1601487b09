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

DRIFTS = "the halves of one run differ by more than the runs do"


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """What ``a`` and ``b`` are, and ``difference``, b - a, from ``low`` to ``high`` (95 %).

    ``share``: of ``a``, with its own interval.  ``verdict``: *differs* where the interval does not
    hold 0, *same* where both are one constant, *unknown* for the reason ``why``, else *not shown*
    (to differ): for a reason only where the interval holds no 0, but the halves of a run differ by
    more.
    """

    a: float | None
    b: float | None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    share: float | None = None
    share_low: float | None = None
    share_high: float | None = None
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
    if fewest and not np.ptp(a.values) and not np.ptp(b.values):
        x, y = float(a.values[0]), float(b.values[0])
        share = (y - x) / x if x else None
        return Difference(
            a=x, b=y, difference=y - x, low=y - x, high=y - x, share=share, share_low=share,
            share_high=share, verdict="same" if x == y else "differs",
        )  # fmt: skip
    if fewest < FEWEST_STEPS:
        why = f"{fewest} steps are too few to tell how they vary; {FEWEST_STEPS} are needed"
        why = why if fewest else "one of the runs has no such number"
        return Difference(
            a=known(x), b=known(y), difference=known(y - x), verdict="unknown", why=why
        )
    draws = bootstrap.draws_for(max(len(a.values), len(b.values)))
    drawn = [one.resampled(seed, draws) for seed, one in enumerate((a, b))]
    (found,), (low,), (high,) = bootstrap.interval(*drawn)
    share, share_low, share_high = (
        known(float(one[0])) for one in bootstrap.ratio_interval(*drawn)
    )
    is_apart = not low <= 0 <= high
    drifts = is_apart and max(a.drift(), b.drift()) > abs(found)
    return Difference(
        a=x, b=y, difference=float(found), low=float(low), high=float(high), share=share,
        share_low=share_low, share_high=share_high,
        verdict="differs" if is_apart and not drifts else "not shown",
        why=DRIFTS if drifts else None,
    )  # fmt: skip
