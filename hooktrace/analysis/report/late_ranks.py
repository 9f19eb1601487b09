"""Which rank keeps the others waiting, and from which bucket on.

Grid.called (ranks, steps, buckets), in rank 0's clock --> who is last, told from the next one
by more than the two clocks may be off --> Lateness of a rank
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .step_arrays import Floats, Grid, middle

__all__ = ["Lateness", "lags", "lateness"]

OFTEN = 0.25
"""Share of steps from which on a rank that is last is worth a name, ..."""

SIGMAS = 3.0
"""... if it is by as many standard deviations above one of the ranks taking turns at random: one
is always last."""

WORTH = 0.005
"""Of the median period: the margin from which on it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lateness:
    """A rank that is ready last.

    ``bucket``: where it is furthest behind the next rank; of the steps, ``share`` have it last
    there.  ``margin_ns``: by how much it is later than the next rank, the mean over all steps,
    those in which it is not last counting as 0: what all ranks wait for.  ``uncertainty_ns``: of
    the difference of two ranks' times.  ``lag_ns``: after the median rank, at that bucket.
    ``since``: the bucket at which it falls behind; the first one where it comes late already.
    """

    rank: int
    bucket: int
    share: float
    margin_ns: float
    uncertainty_ns: float
    lag_ns: float
    since: int
    is_late_from_the_start: bool


def lags(grid: Grid) -> Floats:
    """Return each rank's median ns after the first one, (ranks, buckets); NaN where unknown.

    A rank whose clock nobody measured is unknown, as is all where fewer than two are left.
    """
    called = np.where(np.isnan(grid.uncertainty), np.nan, grid.called)
    found = np.full((len(grid.ranks), len(grid.buckets)), np.nan)
    if np.count_nonzero(~np.isnan(called).all(axis=(1, 2))) < 2:
        return found
    first = np.fmin.reduce(called, axis=0)
    for i in range(len(grid.ranks)):
        for b in range(len(grid.buckets)):
            found[i, b] = middle(called[i, :, b] - first[:, b])
    return found


def lateness(grid: Grid) -> tuple[Lateness, ...]:
    """Return the ranks that are last in ``OFTEN`` of the steps or more, the worst first.

    Also more often than by chance (``SIGMAS``).  Those whose margin is below ``WORTH`` of the
    period are left out.
    """
    count = len(grid.ranks)
    if count < 2 or not len(grid.steps):
        return ()
    order = np.argsort(grid.called, axis=0, kind="stable")  # NaN comes last
    last, following = order[-1:], order[-2:-1]
    margin = _of(grid.called, last) - _of(grid.called, following)
    unsure = _of(grid.uncertainty, last) + _of(grid.uncertainty, following)
    whole = ~np.isnan(grid.called).any(axis=0) & ~np.isnan(grid.uncertainty).any(axis=0)
    told = whole & (margin > unsure)
    known = np.maximum(whole.sum(axis=0), 1)
    worth = WORTH * middle(grid.period)
    found = []
    for i in np.unique(last[0][told]):
        own = told & (last[0] == i)
        margins = np.where(own, margin, 0.0).sum(axis=0) / known
        worst = int(np.argmax(margins))
        share = float(own[:, worst].sum() / known[worst])
        chance = 1 / count
        spread = math.sqrt(chance * (1 - chance) / known[worst])
        often = max(OFTEN, chance + SIGMAS * spread)
        if share >= often and not margins[worst] < worth:
            found.append(
                _lateness(
                    grid,
                    int(i),
                    worst,
                    share=share,
                    margin_ns=float(margins[worst]),
                    unsure=unsure[:, worst],
                )
            )
    return tuple(sorted(found, key=lambda one: -one.margin_ns))


def _of(values: Floats, index: object) -> Floats:
    found: Floats = np.take_along_axis(values, index, axis=0)[0]  # type: ignore[arg-type]
    return found


def _lateness(
    grid: Grid, i: int, worst: int, *, share: float, margin_ns: float, unsure: Floats
) -> Lateness:
    others = np.delete(grid.called, i, axis=0)
    usual = np.median(others, axis=0) if len(others) > 1 else others[0]
    behind = np.array([middle(grid.called[i, :, b] - usual[:, b]) for b in range(usual.shape[1])])
    steps = np.diff(behind, prepend=0.0)[: worst + 1]
    since = int(np.nanargmax(steps))
    return Lateness(
        rank=grid.ranks[i],
        bucket=int(grid.buckets[worst]),
        share=share,
        margin_ns=margin_ns,
        uncertainty_ns=middle(unsure),
        lag_ns=float(behind[worst]),
        since=int(grid.buckets[since]),
        is_late_from_the_start=since == 0,
    )
