"""Who was ready last, how often, and who is late often enough to be named: the one answer.

    Run --delays--> Delays of each rank's calls of one model
    StepArrays --late_ranks--> LateRank, worst first, and where others wait for it
    some steps --late_in--> who is late in these

Ranks are compared by when a bucket's hook was called.  Durations cannot show a late rank: an
all-reduce ends on all ranks at once, so the ranks that wait look as slow as the one they wait for.
Of a bucket's calls the last one is blamed only if it is later than any other by more than the two
clocks may be off (``records.late_rank`` says the same of one bucket).

One rank is always last, and where ranks take turns each is in its share of the steps: ``often``
says from when on that is worth a name.  DDP's buckets are launched and waited for at the end, so
the worst of them tells what a late rank costs.  No rank of a sharded model is named: on a device
the host's calls do not tell when a rank comes to a unit's collective, and training waits at each.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np

from ...records.units import percent
from .clock import last_rank
from .columns import UNKNOWN, Bools, Floats, Ints, bucket_keys
from .dense import StepArrays, medians, middle, sums
from .run import Run, once
from .waits import process_groups


class Delays(NamedTuple):
    """By how many ns a rank's calls came after the first rank's, by row in its ``buckets``.

    ``unsure``: by how much that may be off.  Both are ``UNKNOWN`` in rows of other models, on a
    rank whose clock nobody measured, and where no other rank's call is known.
    """

    ns: Ints
    unsure: Ints


@once
def delays(run: Run, model: str) -> list[Delays]:
    """Return the delays of each rank's calls of a model."""
    groups, _ = process_groups(run)
    found, columns = [], []
    for (track, clock), group in zip(run.ranks, groups, strict=True):
        buckets, found_of = track.buckets, np.full((2, len(track.buckets)), UNKNOWN)
        is_known = track.is_of(buckets, model) & (group != UNKNOWN) & clock.is_known
        rows, host = np.flatnonzero(is_known), buckets.called[is_known]
        key, times = bucket_keys(buckets.step, buckets.bucket)[rows], clock.common(host)
        columns.append((key, group[rows], times, clock.uncertainty(host)))
        found.append((found_of, rows))
    if not columns:
        return []
    key, group, called, unsure = map(np.concatenate, zip(*columns, strict=True))
    order = np.lexsort((called, group, key))
    differs = (np.diff(key[order]) != 0) | (np.diff(group[order]) != 0)
    opens = np.flatnonzero(np.append(np.ones(min(len(order), 1), bool), differs))
    count = np.diff(opens, append=len(order))
    first, several = np.repeat(order[opens], count), np.repeat(count > 1, count)
    late = np.full((2, len(order)), UNKNOWN)
    late[0, order] = np.where(several, called[order] - called[first], UNKNOWN)
    off = np.where(order == first, 0, unsure[order] + unsure[first])
    late[1, order] = np.where(several, off, UNKNOWN)
    ends = np.cumsum([len(rows) for _, rows in found])[:-1]
    for (found_of, rows), own in zip(found, np.split(late, ends, axis=1), strict=True):
        found_of[:, rows] = own
    return [Delays(*found_of) for found_of, _ in found]


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


class Last(NamedTuple):
    """Of each step and bucket the rank for which all others wait, (S, B); ranks are places.

    ``rank``: ``UNKNOWN`` where the clocks do not tell it.  ``margin``: by how much it is later than
    the next one, ns.  ``unsure``: what clocks may be off by.  ``often``: in how many steps a rank
    is last more often than by chance; ``seen``: in how many all have the bucket and a clock, 1 at
    least; (B,).
    """

    rank: Ints
    margin: Floats
    unsure: Floats
    often: Floats
    seen: Ints

    def often_by(self, i: int) -> Bools:
        """Return at which buckets the i-th rank is last often, (B,)."""
        found: Bools = (self.rank == i).sum(axis=0) / self.seen >= self.often
        return found


def is_order_known(arrays: StepArrays) -> bool:
    """Return whether the clocks of all ranks are known at once, in any step."""
    known = ~np.isnan(arrays.detailed.uncertainty)
    return len(known) > 1 and bool(known.all(axis=0).any())


WORTH = 0.005
"""Of the median period: the margin from which on a rank that is late is worth a name."""

MOSTLY = 0.75
"""Of all margins of slow steps: what a rank has to be late by to be named."""


class LateRank(msgspec.Struct, frozen=True, kw_only=True):
    """A rank that is ready last.

    ``bucket``: where it is furthest behind the next rank; of the steps, ``share`` have it last
    there.  ``waiting``: the ranks that never have the bucket's result before it has it ready.
    ``margin_ns``: by how much it is later than the next one of them, the mean over all steps, those
    in which it is not last counting as 0: what they wait for.  ``uncertainty_ns``: of
    the difference of two ranks' times.  ``arrival_delay_ns``: after the median rank, at that
    bucket.  ``since``: the bucket at which it falls behind; ``None`` if it comes late already.
    ``held_ns``: how much longer than others' its hook's calls before ``bucket`` take.
    """

    rank: int
    bucket: int
    share: float
    margin_ns: float
    uncertainty_ns: float
    arrival_delay_ns: float
    since: int | None
    waiting: tuple[int, ...]
    held_ns: float


def why_nobody(*, is_order_known: bool, is_sharded: bool) -> str:
    """Return why no rank is called late, in a clause."""
    if is_sharded:
        return "hooktrace names late ranks of DDP models alone"
    if not is_order_known:
        return "the clocks of all ranks were never known at once"
    return (
        f"none that others wait for is last in {percent(OFTEN)} of the steps or more, beyond "
        f"chance and what clocks may be off, and by {percent(WORTH)} of a step in the mean"
    )


def late_ranks(arrays: StepArrays) -> list[tuple[LateRank, Ints]]:
    """Return the ranks that are last often, and not by chance (``often``), the worst first.

    With each come the ``bucket_keys`` of where others wait for it, the longest wait first, of the
    buckets at which it is last often.

    Of a ``sample``: of slow steps a rank that is late in these would be last in a large share.
    Those whose margin is below ``WORTH`` of the period, and those that nobody waits for, are left
    out.
    """
    if arrays.is_sharded:
        return []
    found = [late for of in arrays.of_each_group() for late in _late_of_group(of)]
    return sorted(found, key=lambda pair: -pair[0].margin_ns)


def _late_of_group(arrays: StepArrays) -> Iterator[tuple[LateRank, Ints]]:
    if len(arrays.ranks) < 2:
        return
    called, unsure = arrays.called, arrays.uncertainty
    known = ~np.isnan(called) & ~np.isnan(unsure)
    seen = np.maximum(known.all(axis=0).sum(axis=0), 1)
    least = np.array([often(len(arrays.ranks), steps) for steps in seen.tolist()])
    last = Last(*last_rank(called, unsure, known), least, seen)
    for i in np.unique(last.rank[last.rank >= 0]).tolist():
        if (late := _late_rank(arrays, last, i)) is not None:
            step, bucket = np.nonzero((last.rank == i) & last.often_by(i))
            order = np.argsort(-last.margin[step, bucket], kind="stable")
            keys = bucket_keys(arrays.steps[step], arrays.buckets[bucket])[order]
            yield late, keys


def _late_rank(arrays: StepArrays, last: Last, i: int) -> LateRank | None:
    """Return what is known of a rank; ``None``: it is last by chance, or nobody waits for it."""
    own = last.rank == i
    worst = int(np.argmax(np.where(own, last.margin, 0.0).sum(axis=0) / last.seen))
    if not last.often_by(i)[worst]:
        return None
    called = arrays.called[..., worst]
    waiting = waiting_ranks(arrays.done[..., worst], called, i)
    if not waiting:
        return None
    after = called[i] - called[waiting].max(axis=0)
    if arrays.is_on_device:
        # A host that comes late may still be ahead of its device: others wait as their stages say.
        longest = np.nan_to_num(sums(arrays.waited[waiting])).max(axis=0)
        after = np.minimum(after, longest)
    waited = float(np.where(own[:, worst], after, 0.0).sum() / last.seen[worst])
    if waited < WORTH * middle(arrays.period):
        return None
    behind = _beyond_others(arrays.called, i)
    held = _beyond_others(arrays.column("launched_after"), i)
    since = int(np.nanargmax(np.diff(behind, prepend=0.0)[: worst + 1]))
    return LateRank(
        rank=arrays.ranks[i],
        bucket=int(arrays.buckets[worst]),
        share=float(own[:, worst].sum() / last.seen[worst]),
        margin_ns=waited,
        uncertainty_ns=middle(last.unsure[:, worst]),
        arrival_delay_ns=float(behind[worst]),
        since=int(arrays.buckets[since]) if since else None,
        waiting=tuple(arrays.ranks[j] for j in waiting),
        held_ns=max(0.0, float(np.nansum(held[:worst]))),
    )


def _beyond_others(values: Floats, i: int) -> Floats:
    """Return by how much a rank is beyond the median of the others at each bucket, (buckets,)."""
    return medians(values[i] - np.median(np.delete(values, i, axis=0), axis=0), axis=0)


def late_in(arrays: StepArrays, steps: Bools, least: float) -> int | None:
    """Return for whom others wait in some steps, by ``least`` ns or more in all.

    ``None`` for nobody beyond what clocks may be off, where ranks take turns, and where not all
    wait for each other.
    """
    if arrays.is_sharded or len(arrays.groups) > 1:
        return None
    ready, unsure, done = (
        times[:, steps].max(axis=2, initial=-np.inf)
        for times in (arrays.called, arrays.uncertainty, arrays.done)
    )
    last, margin, _ = last_rank(ready, unsure, np.isfinite(ready) & np.isfinite(unsure))
    totals = np.where(last == np.arange(len(ready))[:, None], margin, 0.0).sum(axis=1)
    i = int(np.argmax(totals))
    if not totals[i] or totals[i] < max(least, MOSTLY * totals.sum()):
        return None
    is_waited_for = len(waiting_ranks(done, ready, i)) == len(ready) - 1
    return arrays.ranks[i] if is_waited_for else None
