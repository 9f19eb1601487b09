"""Which rank keeps the others waiting, and from which bucket on.

StepArrays.called, in rank 0's clock --timeline.last_rank--> who is last, bucket by bucket
    --often enough, by enough--> LateRank
"""

from __future__ import annotations

import math

import numpy as np

from ..timeline import last_rank
from .facts import LateRank
from .step_arrays import Floats, StepArrays, medians, middle

OFTEN = 0.25
"""Share of steps from which on a rank that is last is worth a name, ..."""

SIGMAS = 3.0
"""... if it is by as many standard deviations above one of the ranks taking turns at random: one
is always last."""

WORTH = 0.005
"""Of the median period: the margin from which on it is."""


def lags(arrays: StepArrays) -> Floats:
    """Return each rank's median ns after the first one, (ranks, buckets); NaN where unknown.

    A rank whose clock nobody measured is unknown, as is all where fewer than two are left.
    """
    called = np.where(np.isnan(arrays.uncertainty), np.nan, arrays.called)
    if np.count_nonzero(~np.isnan(called).all(axis=(1, 2))) < 2:
        return np.full((len(called), called.shape[2]), np.nan)
    return medians(called - np.fmin.reduce(called, axis=0), axis=1)


def late_ranks(arrays: StepArrays) -> tuple[LateRank, ...]:
    """Return the ranks that are last in ``OFTEN`` of the steps or more, the worst first.

    Also more often than by chance (``SIGMAS``).  Those whose margin is below ``WORTH`` of the
    period are left out.
    """
    count = len(arrays.ranks)
    if count < 2 or not len(arrays.steps):
        return ()
    known = ~np.isnan(arrays.called) & ~np.isnan(arrays.uncertainty)
    last, margin, unsure = last_rank(arrays.called, arrays.uncertainty, known)
    seen = np.maximum(known.all(axis=0).sum(axis=0), 1)
    worth = WORTH * middle(arrays.period)
    chance = 1 / count
    found = []
    for i in np.unique(last[last >= 0]).tolist():
        own = last == i
        margins = np.where(own, margin, 0.0).sum(axis=0) / seen
        worst = int(np.argmax(margins))
        share = float(own[:, worst].sum() / seen[worst])
        spread = math.sqrt(chance * (1 - chance) / seen[worst])
        if share < max(OFTEN, chance + SIGMAS * spread) or margins[worst] < worth:
            continue
        behind = _behind_the_median_rank(arrays, i)
        since = int(np.nanargmax(np.diff(behind, prepend=0.0)[: worst + 1]))
        found.append(
            LateRank(
                rank=arrays.ranks[i],
                bucket=int(arrays.buckets[worst]),
                share=share,
                margin_ns=float(margins[worst]),
                uncertainty_ns=middle(unsure[:, worst]),
                lag_ns=float(behind[worst]),
                since=int(arrays.buckets[since]),
                is_late_from_the_start=since == 0,
            )
        )
    return tuple(sorted(found, key=lambda one: -one.margin_ns))


def _behind_the_median_rank(arrays: StepArrays, i: int) -> Floats:
    others = np.delete(arrays.called, i, axis=0)
    return medians(arrays.called[i] - np.median(others, axis=0), axis=0)
