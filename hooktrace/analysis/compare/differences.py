"""Numbers a step of two runs to their differences.

    Table of each run --bootstrap of its steps--> Difference

An interval is about these two runs: how much another run of the same set-up would be off, on a
machine that does other things beside, no number of steps can tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, isnan, log, nan
from typing import NamedTuple

import numpy as np

from ..run.bootstrap import (
    FEWEST_STEPS,
    Estimates,
    Floats,
    block_length,
    draws_for,
    estimate,
    interval,
    ratio_interval,
    resampled,
)
from .comparison import Difference

_LENGTHS_APART = 1.4
"""Series of about the same block length are resampled together, in the longest one's blocks."""

_DRIFTS = "the halves of one run differ by more than the runs do"


class Table(NamedTuple):
    """Series of a run, (steps, series), and by what its steps are ordered, (steps,)."""

    values: Floats
    order: Floats

    @classmethod
    def of(cls, values: Floats) -> Table:
        """Return the table of one series, ordered by itself."""
        return cls(values[:, None], values)

    def estimate(self, share: float) -> Floats:
        """Return what ``bootstrap.estimate`` does; NaN of no steps."""
        if not len(self.order):
            return np.full(self.values.shape[1], nan)
        return estimate(self.values, self.order, share)

    def drift(self, share: float) -> Floats:
        """Return the estimate of the second half of the steps less that of the first."""
        at = len(self.order) // 2
        first, second = (Table(self.values[x], self.order[x]) for x in (np.s_[:at], np.s_[at:]))
        return second.estimate(share) - first.estimate(share)

    def block_length(self, i: int) -> int:
        """Return that of a series; at least that of the order."""
        own = block_length(self.values[:, i])
        return own if self.values.shape[1] == 1 else max(own, block_length(self.order))


def differences(a: Table, b: Table, share: float) -> list[Difference]:
    """Return the difference of each series, of two runs' tables of the same series.

    ``share``: of the ordered steps that the estimate is a mean of, as in ``bootstrap``.
    """
    fewest, longest = sorted(len(table.order) for table in (a, b))
    why = f"{fewest} steps are too few to tell how they vary; {FEWEST_STEPS} are needed"
    why = why if fewest else "one of the runs has no such number"
    found = [
        Difference(a=_some(x), b=_some(y), difference=_some(y - x), verdict="unknown", why=why)
        for x, y in zip(a.estimate(share), b.estimate(share), strict=True)
    ]
    if not fewest:
        return found
    constant = (np.ptp(a.values, axis=0) == 0) & (np.ptp(b.values, axis=0) == 0)
    for i in np.flatnonzero(constant).tolist():
        found[i] = _exact(float(a.values[0, i]), float(b.values[0, i]))
    if fewest < FEWEST_STEPS:
        return found
    drifts = [table.drift(share) for table in (a, b)]
    for some, lengths in _by_length(a, b, np.flatnonzero(~constant).tolist()):
        drawn = [
            resampled(
                t.values[:, some], t.order, share, length=of, seed=seed, draws=draws_for(longest)
            )
            for seed, (t, of) in enumerate(zip((a, b), lengths, strict=True))
        ]
        shown = _with_intervals(drawn[0], drawn[1], [drift[some] for drift in drifts])
        for i, one in zip(some, shown, strict=True):
            found[i] = one
    return found


def _by_length(a: Table, b: Table, some: list[int]) -> Iterator[tuple[list[int], list[int]]]:
    """Yield series that are resampled together, and the lengths of their blocks in both runs."""
    groups: dict[tuple[int, ...], list[int]] = {}
    lengths = {i: [t.block_length(i) for t in (a, b)] for i in some}
    for i, both in lengths.items():
        classes = tuple(ceil(log(one) / log(_LENGTHS_APART)) for one in both)
        groups.setdefault(classes, []).append(i)
    for group in groups.values():
        yield group, [max(lengths[i][side] for i in group) for side in (0, 1)]


def _with_intervals(a: Estimates, b: Estimates, drifts: Sequence[Floats]) -> Iterator[Difference]:
    absolute, relative = interval(a, b), ratio_interval(a, b)
    for i, found in enumerate(absolute.found.tolist()):
        low, high = float(absolute.low[i]), float(absolute.high[i])
        drift_a, drift_b = (float(drift[i]) for drift in drifts)
        is_apart, drifts_more = not low <= 0 <= high, max(abs(drift_a), abs(drift_b)) > abs(found)
        yield Difference(
            a=float(a.found[i]), b=float(b.found[i]), difference=found, low=low, high=high,
            share=_some(relative.found[i]), share_low=_some(relative.low[i]),
            share_high=_some(relative.high[i]), drift_a=drift_a, drift_b=drift_b,
            verdict="differs" if is_apart and not drifts_more else "not shown",
            why=_DRIFTS if is_apart and drifts_more else None,
        )  # fmt: skip


def _exact(a: float, b: float) -> Difference:
    share = (b - a) / a if a else None
    return Difference(
        a=a, b=b, difference=b - a, low=b - a, high=b - a, share=share, share_low=share,
        share_high=share, verdict="same" if a == b else "differs", drift_a=0.0, drift_b=0.0,
    )  # fmt: skip


def _some(value: float) -> float | None:
    return None if isnan(value) else float(value)
