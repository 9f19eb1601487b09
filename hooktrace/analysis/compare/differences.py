"""Numbers a step of two sides to their differences.

    Table of each run --one run a side--> bootstrap of its steps --> Difference
                      --several-------> an estimate a run, Student's t --> Difference

Of one run a side the interval is about these two runs: how much another run of the same set-up
would be off, on a machine that does other things beside, no number of steps can tell.  Of several
runs each is one number, and their spread is in the interval: Welch's t, or where one side has a
single run, Student's with the spread of the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, isnan, log, nan, sqrt
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from .bootstrap import (
    FEWEST_STEPS,
    MEAN,
    Estimates,
    Floats,
    block_length,
    draws_for,
    estimate,
    interval,
    ratio_interval,
    resampled,
    student_t,
)
from .comparison import Difference, Verdict

_LENGTHS_APART = 1.4
"""Series of about the same block length are resampled together, in the longest one's blocks."""


class Table(NamedTuple):
    """Series of a run, (steps, series), and by what its steps are ordered, (steps,)."""

    values: Floats
    order: Floats

    @classmethod
    def of(cls, values: Floats) -> Table:
        """Return the table of one series, ordered by itself."""
        return cls(values[:, None], values)

    def halves(self) -> tuple[Table, Table]:
        """Return the first and the second half of the steps."""
        at = len(self.order) // 2
        return Table(self.values[:at], self.order[:at]), Table(self.values[at:], self.order[at:])


def differences(a: Sequence[Table], b: Sequence[Table], share: float) -> list[Difference]:
    """Return the difference of each series; a table a run, of the same series.

    ``share``: of the ordered steps that the estimate is a mean of, as in ``bootstrap``.
    """
    if len(a) == len(b) == 1:
        return _of_two_runs(a[0], b[0], share)
    found = [[_estimate(table, share) for table in side] for side in (a, b)]
    return [
        _of_runs(*([float(run[i]) for run in side] for side in found))
        for i in range(a[0].values.shape[1])
    ]


def _estimate(table: Table, share: float) -> Floats:
    if not len(table.order):
        return np.full(table.values.shape[1], nan)
    return estimate(table.values, table.order, share)


def _of_two_runs(a: Table, b: Table, share: float) -> list[Difference]:
    why = _why_few(a, b)
    found = [
        Difference(a=_some(x), b=_some(y), difference=_some(y - x), verdict="unknown", why=why)
        for x, y in zip(_estimate(a, share), _estimate(b, share), strict=True)
    ]
    if not len(a.order) or not len(b.order):
        return found
    constant = (np.ptp(a.values, axis=0) == 0) & (np.ptp(b.values, axis=0) == 0)
    for i in np.flatnonzero(constant).tolist():
        found[i] = _exact(float(a.values[0, i]), float(b.values[0, i]))
    if why is not None:
        return found
    drift = [_drift(table, share) for table in (a, b)]
    draws = draws_for(max(len(a.order), len(b.order)))
    for some, lengths in _by_length(a, b, np.flatnonzero(~constant).tolist()):
        drawn = [
            resampled(t.values[:, some], t.order, share, length=of, seed=seed, draws=draws)
            for seed, (t, of) in enumerate(zip((a, b), lengths, strict=True))
        ]
        shown = _with_intervals(drawn[0], drawn[1], drift[0][some], drift[1][some])
        for i, one in zip(some, shown, strict=True):
            found[i] = one
    return found


def _why_few(a: Table, b: Table) -> str | None:
    """Return why nothing can be said of how the series vary; ``None`` where it can."""
    fewest = min(len(a.order), len(b.order))
    if not fewest:
        return "one of the runs has no such number"
    if fewest < FEWEST_STEPS:
        return f"{fewest} steps are too few to tell how they vary; {FEWEST_STEPS} are needed"
    return None


def _length(table: Table, i: int) -> int:
    """Return the length of a block: of the series, at least that of the order."""
    own = block_length(table.values[:, i])
    return own if table.values.shape[1] == 1 else max(own, block_length(table.order))


def _by_length(a: Table, b: Table, some: list[int]) -> Iterator[tuple[list[int], list[int]]]:
    """Yield series that are resampled together, and the lengths of their blocks in both runs."""
    groups: dict[tuple[int, ...], list[int]] = {}
    lengths = {i: [_length(t, i) for t in (a, b)] for i in some}
    for i, both in lengths.items():
        classes = tuple(ceil(log(one) / log(_LENGTHS_APART)) for one in both)
        groups.setdefault(classes, []).append(i)
    for group in groups.values():
        yield group, [max(lengths[i][side] for i in group) for side in (0, 1)]


def _drift(table: Table, share: float) -> Floats:
    first, second = (_estimate(half, share) for half in table.halves())
    return second - first


def _with_intervals(
    a: Estimates, b: Estimates, drift_a: Floats, drift_b: Floats
) -> Iterator[Difference]:
    absolute, relative = interval(a, b), ratio_interval(a, b)
    # What runs vary by is not known of one a side: as their steps and halves do, at the least.
    errors = np.sqrt((a.drawn.var(axis=0) + b.drawn.var(axis=0)) / 2)
    spreads = np.maximum(errors, np.maximum(np.abs(drift_a), np.abs(drift_b)) / 2)
    for i, found in enumerate(absolute.found.tolist()):
        low, high = float(absolute.low[i]), float(absolute.high[i])
        drifts = max(abs(drift_a[i]), abs(drift_b[i])) > abs(found)
        apart = not low <= 0 <= high
        yield Difference(
            a=float(a.found[i]), b=float(b.found[i]), difference=found, low=low, high=high,
            share=_some(relative.found[i]), share_low=_some(relative.low[i]),
            share_high=_some(relative.high[i]), drift_a=float(drift_a[i]),
            drift_b=float(drift_b[i]), verdict="differs" if apart and not drifts else "not shown",
            why="the halves of one run differ by more than the runs do" if apart and drifts
            else None, runs_needed=runs_needed(found, float(spreads[i])),
        )  # fmt: skip


def _exact(a: float, b: float) -> Difference:
    share = (b - a) / a if a else None
    return Difference(
        a=a, b=b, difference=b - a, low=b - a, high=b - a, share=share, share_low=share,
        share_high=share, verdict="same" if a == b else "differs", drift_a=0.0, drift_b=0.0,
    )  # fmt: skip


def _of_runs(a: list[float], b: list[float]) -> Difference:
    """Return the difference of means over runs, by Student's t."""
    a, b = ([x for x in side if not isnan(x)] for side in (a, b))
    means = [float(np.mean(side)) if side else nan for side in (a, b)]
    found = means[1] - means[0]
    if not a or not b or len(a) + len(b) < 3:
        return Difference(
            a=_some(means[0]), b=_some(means[1]), difference=_some(found), verdict="unknown",
            why="too few runs have such a number",
        )  # fmt: skip
    error, freedom = _error_of_means(a, b)
    wide = error * student_t(freedom)
    verdict: Verdict = "differs" if abs(found) > wide else "not shown"
    if not error and not found:
        verdict = "same"
    per = 1 / means[0] if means[0] else nan
    return Difference(
        a=means[0], b=means[1], difference=found, low=found - wide, high=found + wide,
        share=_some(found * per), share_low=_some((found - wide) * per),
        share_high=_some((found + wide) * per), verdict=verdict,
        runs_needed=runs_needed(found, error / sqrt(1 / len(a) + 1 / len(b))),
    )  # fmt: skip


MOST_RUNS = 30
"""A side; nobody repeats a job more often for a comparison."""

_FOUND_IN_4_OF_5 = 0.84
"""The 80 % quantile of the normal distribution."""


def runs_needed(apart: float, spread: float) -> int | None:
    """Return how many runs a side, at least two, tell them ``apart`` in four of five tries.

    The least n with (t(2n - 2) + 0.84) spread sqrt(2 / n) <= |apart|; ``MOST_RUNS + 1`` for more
    than ``MOST_RUNS``, ``None`` where they are not apart.  ``spread``: a run's standard deviation.
    """
    if not apart:
        return None
    for n in range(2, MOST_RUNS + 1):
        if (student_t(2 * n - 2) + _FOUND_IN_4_OF_5) * spread * sqrt(2 / n) <= abs(apart):
            return n
    return MOST_RUNS + 1


def _error_of_means(a: list[float], b: list[float]) -> tuple[float, float]:
    """Return the standard error of the difference of two means, and its degrees of freedom."""
    if min(len(a), len(b)) == 1:
        several = a if len(a) > 1 else b
        spread = float(np.std(several, ddof=1))
        return spread * sqrt(1 / len(a) + 1 / len(b)), len(several) - 1
    terms = [float(np.var(side, ddof=1)) / len(side) for side in (a, b)]
    total = sum(terms)
    below = sum(term**2 / (len(side) - 1) for term, side in zip(terms, (a, b), strict=True))
    return sqrt(total), total**2 / below if below else len(a) + len(b) - 2


def paired(a: Floats, b: Floats) -> Difference:
    """Return the difference of the means of two series of the same steps, compared step by step.

    Of means, since theirs alone is also the mean of the differences.
    """
    apart, same = Table.of(b - a), Table.of(np.zeros(len(a)))
    (found,) = _of_two_runs(same, apart, MEAN)
    own = [_some(float(_estimate(Table.of(x), MEAN)[0])) for x in (a, b)]
    shares = [_share(x, own[0]) for x in (found.difference, found.low, found.high)]
    return replace(
        found, a=own[0], b=own[1], share=shares[0], share_low=shares[1], share_high=shares[2],
        drift_a=None, drift_b=None, runs_needed=None,
    )  # fmt: skip


def _share(of: float | None, whole: float | None) -> float | None:
    """Return a share of what is above 0; a share of a loss that is not says nothing."""
    return None if of is None or whole is None or whole <= 0 else of / whole


def _some(value: float) -> float | None:
    return None if isnan(value) else float(value)
