"""Who came last to each bucket, or of its group to each collective of a sharded model.

    StepArrays --together--> groups --arrivals, less waited_elsewhere--> LastOfGroup of each

Report, comparison and tab name late ranks by this.  All ranks of a group leave its collective
together, so what one is late by at the next is its own; but for what it has waited meanwhile for
ranks that are not in the group: where units are shared by parts of the ranks (hybrid sharding),
rank 3 waits for rank 2, and then rank 1 for rank 3.  What a rank has waited since it was last
together with those that wait for it now is not its own, and less it.

One rank is always last, and where ranks take turns each is in its share of the steps: ``often``
says from when on that is worth a name.

DDP's buckets are launched and waited for at the end, so the worst of them tells what a late rank
costs.  Of units training waits one after another, and all ranks leave each collective together: a
rank that is slow in every layer makes others wait at every layer (``late_at_units``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ...records.units import percent
from ..timeline import UNKNOWN, Bools, Ints, last_rank
from ..timeline.whole import Together
from .facts import LateAt, LateRank
from .step_arrays import Floats, StepArrays, medians, middle


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


OFTEN = 0.25
"""Share of steps from which on a rank that is last is worth a name, ..."""

SIGMAS = 3.0
"""... if it is by as many standard deviations above one of the ranks taking turns at random."""

WORTH = 0.005
"""Of the median period: the margin from which on a rank that is late is worth a name."""

SURELY = 0.95
"""Of the steps: in which one that waits for a rank has its result after that rank is ready."""

MOSTLY = 0.75
"""Of all margins of slow steps: what a rank has to be late by to be named."""


def often(ranks: int, steps: int) -> float:
    """Return the share of steps from which on a rank comes last often, and not by chance.

    A step is a draw of 1 / ``ranks``, so ``steps`` draws spread by sqrt(p (1 - p) / steps).
    """
    chance = 1 / max(1, ranks)
    return max(OFTEN, chance + SIGMAS * math.sqrt(chance * (1 - chance) / max(1, steps)))


def waiting_ranks(done: Floats, ready: Floats, i: int) -> list[int]:
    """Return who has a result only after the i-th rank has it ready, ``SURELY`` always, or may.

    ``done``, ``ready``: (ranks, steps).  Of a hook that sends nothing, or to some ranks only, the
    others do not wait.
    """
    known = np.maximum(np.count_nonzero(np.isfinite(done) & np.isfinite(ready[i]), axis=1), 1)
    before = np.count_nonzero(done < ready[i], axis=1) / known
    return [j for j in np.flatnonzero(before <= 1 - SURELY).tolist() if j != i]


def why_nobody(*, is_order_known: bool, is_sharded: bool, is_on_device: bool) -> str:
    """Return why no rank is called late, in a clause."""
    if is_sharded and is_on_device:
        return "on a device the host's calls do not tell when a rank comes to a unit's collective"
    if not is_order_known:
        return "the clocks of all ranks were never known at once"
    return (
        f"none that others wait for is last in {percent(OFTEN)} of the steps or more, beyond "
        f"chance and what clocks may be off, and by {percent(WORTH)} of a step in the mean"
    )


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


def late_at_units(arrays: StepArrays) -> tuple[LateRank, ...]:
    """Return the ranks that come last often, and not by chance, the worst first.

    A rank's margin is the mean over steps of the sum over the collectives that it comes last to so
    often; of several groups' for the rank that waits longest.  Nobody is named on a device, where
    the host's calls do not tell when work begins, and of collectives of which it is not known which
    ranks are in them.
    """
    if arrays.is_on_device or len(arrays.ranks) < 2:
        return ()
    groups = last_of_groups(arrays)
    named = {i for one in groups for i in np.unique(one.last[one.last >= 0]).tolist()}
    late = (_late_rank(arrays, _Often(arrays, groups, i), i) for i in sorted(named))
    return tuple(sorted(filter(None, late), key=lambda one: -one.margin_ns))


class _Often:
    """What others wait for the i-th rank where it comes last often; B buckets.

    ``groups``: those that it is in.  ``by_unit``: the mean over steps, (B,).  ``shares``: of the
    steps in which it is surely the last one of its group there, (B,).  ``is_often``, ``is_sure``:
    (B,).  ``waited``: the sum over all buckets, for the rank that waits longest.
    """

    def __init__(self, arrays: StepArrays, groups: Sequence[LastOfGroup], i: int) -> None:
        self.groups = [one for one in groups if i in one.group.ranks]
        size = len(arrays.buckets)
        self.by_unit, self.shares = np.zeros(size), np.zeros(size)
        self.is_often, self.is_sure = np.zeros(size, bool), np.zeros(size, bool)
        of_ranks = np.zeros(len(arrays.ranks))
        for one in self.groups:
            own, at, seen = one.last == i, [*one.group.buckets], one.seen
            is_often, sure = one.often_by(i), (own & one.is_sure).sum(axis=0)
            margins = np.where(own & is_often, one.margin, 0.0)
            self.by_unit[at] = margins.sum(axis=0) / seen
            self.shares[at] = sure / seen
            self.is_often[at] = is_often & (self.by_unit[at] > 0)
            self.is_sure[at] = self.is_often[at] & one.is_often(sure)
            of_ranks[[*one.group.ranks]] += margins.sum(axis=1).mean()
        self.waited = float(np.delete(of_ranks, i).max())

    def worst(self, order: Sequence[int]) -> int:
        """Return where the rank is last; of several groups' where that begins, in ``order``."""
        most = np.where(self.is_sure, self.by_unit, 0.0)
        if len(self.groups) == 1:
            return int(np.argmax(most))
        return next(b for b in order if most[b] >= most.max() / 2)

    def group_at(self, b: int) -> LastOfGroup:
        """Return the group whose collective a bucket is."""
        return next(one for one in self.groups if b in one.group.buckets)


def _late_rank(arrays: StepArrays, found: _Often, i: int) -> LateRank | None:
    """Return what is known of a rank; ``None``: it is last by chance, or nobody waits for it."""
    if not found.is_sure.any() or found.waited < WORTH * middle(arrays.period):
        return None
    order: list[int] = np.argsort(medians(arrays.called[i], axis=0), kind="stable").tolist()
    worst = found.worst(order)
    one = found.group_at(worst)
    waiting = _waiting(arrays, one, worst, i)
    if not waiting:
        return None
    place = order.index(worst)
    in_parts = _in_parts(arrays)
    joins = joining(arrays, one.group) if in_parts else np.ones(len(order), bool)
    joins &= (~np.isnan(arrays.called[i])).mean(axis=0) > 1 / 2  # what most steps have
    before = [b for b in order[:place] if joins[b]]
    # At the first such collective of a step its ranks were together last in the step before.
    earlier = before or [b for b in order if joins[b] and place] or [worst]
    others = [j for j in one.group.ranks if j != i]
    behind = arrays.called[i, :, worst] - np.median(arrays.called[others, :, worst], axis=0)
    return LateRank(
        rank=arrays.ranks[i],
        bucket=int(arrays.buckets[worst]),
        share=float(found.shares[worst]),
        margin_ns=found.waited,
        uncertainty_ns=middle(one.unsure[:, one.group.buckets.index(worst)]),
        lag_ns=middle(behind),
        since=int(arrays.buckets[earlier[-1]]),
        waiting=tuple(arrays.ranks[j] for j in waiting),
        held_ns=0.0,
        is_late_from_the_start=place == 0,
        units=int(found.is_often.sum()),
        members=tuple(arrays.ranks[j] for j in one.group.ranks) if in_parts else (),
        is_since_step_before=bool(place) and not before,
        elsewhere=tuple(_elsewhere(arrays, found, one, i)),
    )


def _elsewhere(arrays: StepArrays, found: _Often, worst: LastOfGroup, i: int) -> Iterator[LateAt]:
    """Yield where ranks of its other groups wait for a rank most."""
    for one in found.groups:
        at = max(one.group.buckets, key=lambda b: float(found.by_unit[b] * found.is_often[b]))
        waiting = _waiting(arrays, one, at, i) if found.is_often[at] else []
        if one is not worst and waiting:
            yield LateAt(
                bucket=int(arrays.buckets[at]),
                members=tuple(arrays.ranks[j] for j in one.group.ranks),
                waiting=tuple(arrays.ranks[j] for j in waiting),
                margin_ns=float(found.by_unit[at]),
            )


def _waiting(arrays: StepArrays, one: LastOfGroup, b: int, i: int) -> list[int]:
    """Return the places of those of a group that have a result only when the i-th rank is ready.

    Without those that come as late, since they have waited for it before.
    """
    ranks, called = [*one.group.ranks], arrays.called[..., b]
    found = waiting_ranks(arrays.done[ranks, :, b], called[ranks], ranks.index(i))
    if not _in_parts(arrays):
        return [ranks[j] for j in found]
    least = middle(one.margin[:, one.group.buckets.index(b)]) / 2
    return [ranks[j] for j in found if middle(called[i] - called[ranks[j]]) > least]


def _in_parts(arrays: StepArrays) -> bool:
    return any(len(group.ranks) < len(arrays.ranks) for group in arrays.together)


def late_at_units_in(arrays: StepArrays, steps: Ints, least: float) -> tuple[int | None, float]:
    """Return for whom others wait in some steps, ``least`` ns or more in all, and at most in one.

    ``None`` and 0 for nobody, and where ranks take turns.
    """
    if arrays.is_on_device or len(arrays.ranks) < 2:
        return None, 0.0
    groups = last_of_groups(arrays)
    sums = [_for_rank(arrays, groups, i, steps) for i in range(len(arrays.ranks))]
    totals = [float(one.sum()) for one in sums]
    i = int(np.argmax(totals))
    if not totals[i] or totals[i] < max(least, MOSTLY * sum(totals)):
        return None, 0.0
    return arrays.ranks[i], float(sums[i].max())


def _for_rank(arrays: StepArrays, groups: Sequence[LastOfGroup], i: int, steps: Ints) -> Floats:
    """Return what the rank that waits longest for the i-th one waits in each of some steps."""
    found = np.zeros((len(arrays.ranks), len(steps)))
    for one in groups:
        if i in one.group.ranks:
            margins = np.where(one.last[steps] == i, one.margin[steps], 0.0)
            found[[*one.group.ranks]] += margins.sum(axis=1)
    longest: Floats = np.delete(found, i, axis=0).max(axis=0)
    return longest
