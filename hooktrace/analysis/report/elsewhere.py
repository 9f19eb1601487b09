"""What ranks have waited in other groups' collectives since those of one were last together.

    StepArrays, a group --waited_elsewhere--> ns that each rank was held up before each collective

Where units are shared by parts of the ranks (hybrid sharding), a rank that has waited for another
one comes late to its next collective by no work of its own: rank 3 waits for rank 2, and then rank
1 for rank 3.  What it has waited since it was last together with those that wait for it now is
not its own, and less it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..timeline import Bools
from .step_arrays import Floats, StepArrays, medians
from .together import Together


class Elsewhere(NamedTuple):
    """``ns``: of a group's ranks at each of its collectives, (ranks, steps, buckets); NaN: unknown.

    ``times``: the number of collectives in which they may have waited so.
    """

    ns: Floats
    times: Floats


def order_of(arrays: StepArrays) -> list[int]:
    """Return the places of the collectives of a step, in the order in which they are called."""
    called = arrays.called.reshape(-1, len(arrays.buckets))
    found: list[int] = np.argsort(medians(called, axis=0), kind="stable").tolist()
    return found


def joining(arrays: StepArrays, group: Together) -> Bools:
    """Return at which collectives all of a group's ranks are together, (buckets,)."""
    found = np.zeros(len(arrays.buckets), bool)
    for other in arrays.together:
        if set(group.ranks) <= set(other.ranks):
            found[[*other.buckets]] = True
    return found


def waited_elsewhere(arrays: StepArrays, group: Together) -> Elsewhere:
    """Return what a group's ranks have waited for others before each of its collectives."""
    shape = len(group.ranks), len(arrays.steps), len(group.buckets)
    joins = joining(arrays, group)
    if joins.all():
        return Elsewhere(np.zeros(shape), np.zeros(shape))
    order, ranks = order_of(arrays), [*group.ranks]
    joins = joins[order]
    there = ~np.isnan(arrays.called[ranks][..., order]) & ~joins
    waited = np.minimum(arrays.waited.ns, arrays.exposed_in)[ranks][..., order]
    sums = [
        _until(values)
        for values in (np.where(there, np.nan_to_num(waited), 0.0), there, there & np.isnan(waited))
    ]
    numbers = np.arange(len(order))
    before = np.maximum.accumulate(np.where(joins, numbers + 1, 0))
    at = np.argsort(order)[[*group.buckets]]
    since = np.append(0, before)[at]
    ns, count, unknown = (one[..., at] - one[..., since] for one in sums)
    # At the first such collective of a step the last one was in the step before.
    first = since == 0
    if first.any() and before[-1] < len(order):
        of_tail = [one[..., -1] - one[..., before[-1]] for one in sums]
        follows = np.diff(arrays.steps, prepend=arrays.steps[:1]) == 1
        for values, tail in zip((ns, count, unknown), of_tail, strict=True):
            values[..., first] += np.roll(tail, 1, axis=1)[..., None]
        unknown[..., first] += ~follows[:, None]
    return Elsewhere(np.where(unknown > 0, np.nan, ns), count)


def _until(values: Floats | Bools) -> Floats:
    """Return the sums over all collectives before each one, and over all, along the last axis."""
    found = np.zeros((*values.shape[:-1], values.shape[-1] + 1))
    np.cumsum(values, axis=-1, out=found[..., 1:])
    return found
