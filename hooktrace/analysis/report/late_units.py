"""Who comes late to the collectives of a sharded model, whose waits add up over a step.

    StepArrays --> LateRank of each rank that others wait for; the rank that slow steps wait for

DDP's buckets are launched and waited for at the end, so the worst of them tells what a late rank
costs.  Of units training waits one after another, and all ranks leave each collective together: a
rank that is slow in every layer makes others wait at every layer.
"""

from __future__ import annotations

import numpy as np

from ..timeline import Ints, last_rank, often
from .facts import LateRank
from .step_arrays import Floats, StepArrays, medians, middle
from .who_waits import MOSTLY, WORTH, waiting_ranks


def late_at_units(arrays: StepArrays) -> tuple[LateRank, ...]:
    """Return the ranks that come last often, and not by chance, the worst first.

    A rank's margin is the mean over steps of the sum over the collectives that it comes last to so
    often.  Nobody is named on a device, where the host's calls do not tell when work begins, and
    of collectives that a part of the ranks is in.
    """
    if arrays.is_on_device or len(arrays.ranks) < 2:
        return ()
    last, margin, unsure = _lateness(arrays)
    seen = np.maximum((~np.isnan(arrays.called)).all(axis=0).sum(axis=0), 1)
    found = []
    for i in np.unique(last[last >= 0]).tolist():
        own = last == i
        shares = own.sum(axis=0) / seen
        least = np.array([often(len(arrays.ranks), count) for count in seen.tolist()])
        margins = np.where(own & (shares >= least), margin, 0.0)
        by_unit = margins.sum(axis=0) / seen
        worst = int(np.argmax(by_unit))
        waited = float(margins.sum(axis=1).mean())
        if shares[worst] < least[worst] or waited < WORTH * middle(arrays.period):
            continue
        waiting = waiting_ranks(arrays.done[..., worst], arrays.called[..., worst], i)
        if not waiting:
            continue
        order = np.argsort(medians(arrays.called[i], axis=0), kind="stable").tolist()
        place = order.index(worst)
        others = np.delete(arrays.called[..., worst], i, axis=0)
        found.append(
            LateRank(
                rank=arrays.ranks[i],
                bucket=int(arrays.buckets[worst]),
                share=float(shares[worst]),
                margin_ns=waited,
                uncertainty_ns=middle(unsure[:, worst]),
                lag_ns=middle(arrays.called[i, :, worst] - np.median(others, axis=0)),
                since=int(arrays.buckets[order[max(0, place - 1)]]),
                waiting=tuple(arrays.ranks[j] for j in waiting),
                held_ns=0.0,
                is_late_from_the_start=place == 0,
                units=int(((shares >= least) & (by_unit > 0)).sum()),
            )
        )
    return tuple(sorted(found, key=lambda one: -one.margin_ns))


def late_at_units_in(arrays: StepArrays, steps: Ints, least: float) -> tuple[int | None, float]:
    """Return for whom others wait in some steps, ``least`` ns or more in all, and at most in one.

    ``None`` and 0 for nobody, and where ranks take turns.
    """
    if arrays.is_on_device or len(arrays.ranks) < 2:
        return None, 0.0
    last, margin, _ = _lateness(arrays)
    sums = [
        np.where(last[steps] == i, margin[steps], 0.0).sum(axis=1) for i in range(len(arrays.ranks))
    ]
    totals = [float(one.sum()) for one in sums]
    i = int(np.argmax(totals))
    if not totals[i] or totals[i] < max(least, MOSTLY * sum(totals)):
        return None, 0.0
    return arrays.ranks[i], float(sums[i].max())


def _lateness(arrays: StepArrays) -> tuple[Ints, Floats, Floats]:
    """Return who came last to each collective, by how much, and what clocks may be off by, (S, B).

    What nobody waited for is no margin: it is at most as long as another rank's call exposed.
    """
    known = ~np.isnan(arrays.called) & ~np.isnan(arrays.uncertainty) & arrays.whole
    last, margin, unsure = last_rank(arrays.called, arrays.uncertainty, known)
    waited: Floats = np.fmax.reduce(arrays.exposed_in, axis=0)
    return last, np.fmin(margin, waited), unsure
