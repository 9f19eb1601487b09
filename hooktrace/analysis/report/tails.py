"""What ends a step late: the exposed tail shared out over buckets, and steps that take too long."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .step_arrays import Floats, Grid, middle

__all__ = ["SlowSteps", "charged_share", "slow_steps", "tails"]

SLOW = 1.5
"""A step is slow from so many median periods on."""


def tails(grid: Grid) -> Floats:
    """Return the exposed ns that each bucket adds, (ranks, steps, buckets).

    After the last bucket is ready the backend finishes what is left, one bucket after another; the
    time until a bucket is done, since the one before it was, is what that bucket adds.  A step's
    sum is its exposed time.
    """
    after = grid.done - np.nanmax(grid.ready, axis=2, initial=-np.inf, keepdims=True)
    left = np.where(np.isnan(after), 0.0, np.maximum(after, 0.0))
    order = np.argsort(left, axis=2, kind="stable")
    added = np.diff(np.take_along_axis(left, order, axis=2), axis=2, prepend=0.0)
    found: Floats = np.empty_like(left)
    np.put_along_axis(found, order, added, axis=2)
    return found


def charged_share(grid: Grid) -> Floats:
    """Return each bucket's share of the exposed time, (buckets,), over ordinary steps.

    Ordinary is the middle half of all by exposed time: the tail of a slow step has causes of its
    own.  Zeros where nothing is exposed.
    """
    added = tails(grid)
    exposed = added.sum(axis=2)
    low, high = middle(exposed, 0.25), middle(exposed, 0.75)
    chosen = added[(exposed >= low) & (exposed <= high)]
    sums = chosen.sum(axis=0)
    total = float(sums.sum())
    found: Floats = sums / total if total > 0 else np.zeros(len(grid.buckets))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowSteps:
    """Steps that take ``SLOW`` times the median period or more, the slowest first.

    ``excess_ns``: what they take beyond the median, a step of all steps.  ``exposed_excess_ns``:
    as much of it as is exposed communication beyond its median; ``backward_excess_ns``: the same of
    the time from the first to the last bucket that is ready.  ``periods``: all that are known.
    """

    steps: tuple[int, ...]
    periods: int
    slowest_ns: float
    excess_ns: float
    exposed_excess_ns: float
    backward_excess_ns: float


def slow_steps(grid: Grid) -> SlowSteps | None:
    """Return the slow steps; ``None`` where there are none, or hardly any periods are known.

    A period counts from one step's first bucket to the next one's, so what a long one holds is the
    communication of the step before it.
    """
    period = _over_ranks(grid.period)
    if np.count_nonzero(~np.isnan(period)) < 8:
        return None
    usual = middle(period)
    slow = np.flatnonzero(period >= SLOW * usual)
    slow = slow[slow > 0]
    if not len(slow) or usual <= 0:
        return None
    known = int(np.count_nonzero(~np.isnan(period)))
    beyond = period[slow] - usual

    def excess(values: Floats) -> float:
        more = np.nan_to_num(values[slow - 1] - middle(values))
        return float(np.clip(more, 0.0, beyond).sum()) / known

    backward = np.fmax.reduce(grid.ready, axis=2, initial=np.nan)
    backward -= np.fmin.reduce(grid.ready, axis=2, initial=np.nan)
    worst = slow[np.argsort(-period[slow], kind="stable")]
    return SlowSteps(
        steps=tuple(int(s) for s in grid.steps[worst - 1]),
        periods=known,
        slowest_ns=float(period[worst[0]]),
        excess_ns=float(beyond.sum()) / known,
        exposed_excess_ns=excess(_over_ranks(grid.exposed)),
        backward_excess_ns=excess(_over_ranks(backward)),
    )


def _over_ranks(values: Floats) -> Floats:
    """Return the median over ranks of each step; NaN where no rank knows."""
    found = np.full(values.shape[1], np.nan)
    some = ~np.isnan(values).all(axis=0)
    found[some] = np.nanmedian(values[:, some], axis=0)
    return found
