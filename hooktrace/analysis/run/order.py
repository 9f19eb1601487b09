"""Who was ready last, at which bucket, and how often.

    Run --lags--> Lags of each rank's calls of one model
    StepArrays --together--> groups --less waited_elsewhere--> LastOfGroup of each
    times of ranks, what clocks may be off by --last_rank--> the rank that all others wait for

Ranks are compared by when a bucket's hook was called.  Durations cannot show a late rank: an
all-reduce ends on all ranks at once, so the ranks that wait look as slow as the one they wait for.
Of a bucket's calls the last one is blamed only if it is later than any other by more than the two
clocks may be off (``records.late_rank`` says the same of one bucket).

All ranks of a group leave its collective together, so what one is late by at the next is its own;
but for what it has waited meanwhile for ranks that are not in the group: where units are shared by
parts of the ranks (hybrid sharding), rank 3 waits for rank 2, and then rank 1 for rank 3.  What a
rank has waited since it was last together with those that wait for it now is not its own.

One rank is always last, and where ranks take turns each is in its share of the steps: ``often``
says from when on that is worth a name.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from .clock import last_rank
from .columns import UNKNOWN, Bools, Ints, bucket_keys
from .dense import Floats, StepArrays, medians
from .groups import Together, process_groups
from .run import Run, once


class Lags(NamedTuple):
    """By how many ns a rank's calls came after the first rank's, by row in its ``buckets``.

    ``unsure``: by how much that may be off.  Both are ``UNKNOWN`` in rows of other models, on a
    rank whose clock nobody measured, and where no other rank's call is known.
    """

    ns: Ints
    unsure: Ints


@once
def lags(run: Run, model: str) -> list[Lags]:
    """Return the lags of each rank's calls of a model."""
    columns = []
    for track, clock, group in zip(run.tracks, run.clocks, process_groups(run).of, strict=True):
        is_known = track.is_of(track.buckets, model) & (group != UNKNOWN) & clock.is_known
        rows, host = np.flatnonzero(is_known), track.buckets.called[is_known]
        step, bucket = track.buckets.step[rows], track.buckets.bucket[rows]
        times = clock.common(host), clock.uncertainty(host)
        columns.append((rows, bucket_keys(step, bucket), group[rows], *times))
    if not columns:
        return []
    _, key, group, called, unsure = map(np.concatenate, zip(*columns, strict=True))
    order = np.lexsort((called, group, key))
    differs = (np.diff(key[order]) != 0) | (np.diff(group[order]) != 0)
    opens = np.flatnonzero(np.append(np.ones(min(len(order), 1), bool), differs))
    count = np.diff(opens, append=len(order))
    first, several = np.repeat(order[opens], count), np.repeat(count > 1, count)
    lag, off = np.full(len(order), UNKNOWN), np.full(len(order), UNKNOWN)
    lag[order] = np.where(several, called[order] - called[first], UNKNOWN)
    off[order] = np.where(several, np.where(order == first, 0, unsure[order] + unsure[first]), -1)
    ends = np.cumsum([len(rows) for rows, *_ in columns])
    found = []
    for track, (rows, *_), end in zip(run.tracks, columns, ends.tolist(), strict=True):
        own = slice(end - len(rows), end)
        made = Lags(*(np.full(len(track.buckets), UNKNOWN) for _ in range(2)))
        made.ns[rows], made.unsure[rows] = lag[own], off[own]
        found.append(made)
    return found


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
    waited = np.minimum(arrays.waited, arrays.exposed_in)[ranks][..., order]
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

SURELY = 0.95
"""Of the steps: in which one that waits for a rank has its result after that rank is ready."""


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
    groups = arrays.together
    if not arrays.is_sharded and len(arrays.ranks) > 1:
        groups = (Together(tuple(range(len(arrays.ranks))), tuple(range(len(arrays.buckets)))),)
    return [_last_of(arrays, group) for group in groups]


def _last_of(arrays: StepArrays, group: Together) -> LastOfGroup:
    at: Any = (slice(None),)
    if arrays.is_sharded:
        at = np.ix_(group.ranks, range(len(arrays.steps)), group.buckets)
    called, unsure = arrays.called[at], arrays.uncertainty[at]
    known = ~np.isnan(called) & ~np.isnan(unsure)
    last, margin, off = last_rank(called, unsure, known)
    is_sure = last != UNKNOWN
    if arrays.is_sharded:
        held = waited_elsewhere(arrays, group)
        known &= ~np.isnan(held.ns)
        if held.times.any():
            # Each wait is off by as much as two clocks.
            more = 2 * held.times * np.fmax.reduce(unsure, axis=0)
            own, margin, off = last_rank(called - held.ns, unsure + more, known)
            row = np.where(own == UNKNOWN, 0, own)[None]
            behind = np.take_along_axis(called, row, axis=0)[0] - called.min(axis=0)
            margin = np.fmin(margin, behind)
            is_sure, last = (own == last) & is_sure, np.where(behind > 0, own, UNKNOWN)
        # What nobody waited for is no margin: at most as long as another rank's call exposed.
        margin = np.fmin(margin, np.fmax.reduce(arrays.exposed_in[at], axis=0))
    return LastOfGroup(
        group=group,
        last=np.where(last == UNKNOWN, UNKNOWN, np.array(group.ranks)[last]),
        is_sure=is_sure & (last != UNKNOWN),
        margin=margin,
        unsure=off,
        seen=np.maximum(known.all(axis=0).sum(axis=0), 1),
    )


def is_order_known(arrays: StepArrays) -> bool:
    """Return whether the clocks of all ranks that wait for each other are known, in any step."""
    arrays = arrays.detailed
    known = ~np.isnan(arrays.uncertainty)
    groups = [one.ranks for one in arrays.together] or [tuple(range(len(known)))]
    return any(len(ranks) > 1 and bool(known[[*ranks]].all(axis=0).any()) for ranks in groups)
