"""Who came last to each bucket, or of its group to each collective of a sharded model.

    StepArrays --together.py--> groups --arrivals, less elsewhere.py--> LastOfGroup of each

Report, comparison and tab name late ranks by this.  All ranks of a group leave its collective
together, so what one is late by at the next is its own; but for what it has waited meanwhile for
ranks that are not in the group.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..timeline import UNKNOWN, Bools, Ints, last_rank
from .elsewhere import waited_elsewhere
from .step_arrays import Floats, StepArrays
from .together import Together
from .who_waits import often


class LastOfGroup(NamedTuple):
    """One group's collectives, (S, b); ranks are places among all of them.

    ``last``: for whom others waited, by its own doing; ``UNKNOWN`` where it is not told, or for
    nobody.  ``is_sure``: it also came last, as clocks tell.  ``margin``: what others waited for it,
    ns.  ``unsure``: what clocks may be off by.  ``seen``: in how many steps all ranks have it, and
    their clocks and what they waited elsewhere are known, 1 at least, (b,).
    """

    group: Together
    last: Ints
    is_sure: Bools
    margin: Floats
    unsure: Floats
    seen: Ints

    def often_by(self, i: int) -> Bools:
        """Return at which collectives others wait for the i-th rank often, (b,)."""
        return self.is_often((self.last == i).sum(axis=0))

    def is_often(self, times: Ints) -> Bools:
        """Return where a rank that is last so many times is so more often than by chance, (b,)."""
        least = [often(len(self.group.ranks), steps) for steps in self.seen.tolist()]
        found: Bools = times / self.seen >= np.array(least)
        return found


def last_of_groups(arrays: StepArrays) -> list[LastOfGroup]:
    """Return it of each group whose ranks are known; DDP's buckets are one of all ranks."""
    if arrays.is_sharded:
        return [_last_of(arrays, group) for group in arrays.together]
    return [_last_of_all(arrays)] if len(arrays.ranks) > 1 else []


def _last_of_all(arrays: StepArrays) -> LastOfGroup:
    known = ~np.isnan(arrays.called) & ~np.isnan(arrays.uncertainty)
    last, margin, off = last_rank(arrays.called, arrays.uncertainty, known)
    return LastOfGroup(
        group=Together(tuple(range(len(arrays.ranks))), tuple(range(len(arrays.buckets)))),
        last=last,
        is_sure=last != UNKNOWN,
        margin=margin,
        unsure=off,
        seen=np.maximum(known.all(axis=0).sum(axis=0), 1),
    )


def _last_of(arrays: StepArrays, group: Together) -> LastOfGroup:
    ranks, buckets = [*group.ranks], [*group.buckets]
    called, unsure = (x[ranks][..., buckets] for x in (arrays.called, arrays.uncertainty))
    held = waited_elsewhere(arrays, group)
    known = ~np.isnan(called) & ~np.isnan(unsure)
    last, margin, off = last_rank(called, unsure, known)
    is_sure = last != UNKNOWN
    if held.times.any():
        # Each wait is off by as much as two clocks.
        more = 2 * held.times * np.fmax.reduce(unsure, axis=0)
        by_itself = ~np.isnan(held.ns)
        own, margin, off = last_rank(called - held.ns, unsure + more, known & by_itself)
        at = np.where(own == UNKNOWN, 0, own)[None]
        behind = np.take_along_axis(called, at, axis=0)[0] - called.min(axis=0)
        margin = np.fmin(margin, behind)
        is_sure, last = (own == last) & (own != UNKNOWN), np.where(behind > 0, own, UNKNOWN)
    # What nobody waited for is no margin: it is at most as long as another rank's call exposed.
    waited: Floats = np.fmax.reduce(arrays.exposed_in[ranks][..., buckets], axis=0)
    return LastOfGroup(
        group=group,
        last=np.where(last == UNKNOWN, UNKNOWN, np.array(ranks)[last]),
        is_sure=is_sure & (last != UNKNOWN),
        margin=np.fmin(margin, waited),
        unsure=off,
        seen=np.maximum((known & ~np.isnan(held.ns)).all(axis=0).sum(axis=0), 1),
    )


def is_order_known(arrays: StepArrays) -> bool:
    """Return whether the clocks of all ranks that wait for each other are known, in any step."""
    known = ~np.isnan(arrays.uncertainty)
    groups = [one.ranks for one in arrays.together] or [tuple(range(len(known)))]
    return any(len(ranks) > 1 and bool(known[[*ranks]].all(axis=0).any()) for ranks in groups)
