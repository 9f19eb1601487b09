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

from ..timeline import Bools, Ints
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
    called = ~np.isnan(arrays.called[ranks][..., order])
    there = called & ~joins
    waited = np.minimum(arrays.waited.ns, arrays.exposed_in)[ranks][..., order]
    sums = [
        _until(values)
        for values in (np.where(there, np.nan_to_num(waited), 0.0), there, there & np.isnan(waited))
    ]
    # Of each step: not all have each collective.  Behind the last one that joins them, (S, B + 1).
    met = np.where(joins & called.all(axis=0), np.arange(len(order)) + 1, 0)
    met = np.maximum.accumulate(np.insert(met, 0, 0, axis=1), axis=1)
    at = np.argsort(order)[[*group.buckets]]
    since = met[:, at]
    ns, times, unknown = (one[..., at] - _at(one, since) for one in sums)
    # At the first such collective of a step the last one was in the step before.
    tails = [one[..., -1:] - _at(one, met[:, -1:]) for one in sums]
    if tails[1].any():
        first, follows = since == 0, np.diff(arrays.steps, prepend=arrays.steps[:1]) == 1
        earlier = (np.where(first, np.roll(tail, 1, axis=1), 0.0) for tail in tails)
        more_ns, more_times, more_unknown = earlier
        ns, times, unknown = ns + more_ns, times + more_times, unknown + more_unknown
        unknown += first & ~follows[:, None]
    return Elsewhere(np.where(unknown > 0, np.nan, ns), times)


def _at(sums: Floats, places: Ints) -> Floats:
    """Return of each rank and step the sums before some collectives, which are each step's own."""
    found: Floats = np.take_along_axis(sums, np.broadcast_to(places, (len(sums), *places.shape)), 2)
    return found


def _until(values: Floats | Bools) -> Floats:
    """Return the sums over all collectives before each one, and over all, along the last axis."""
    found = np.zeros((*values.shape[:-1], values.shape[-1] + 1))
    np.cumsum(values, axis=-1, out=found[..., 1:])
    return found
