"""Which ranks others wait for often enough to be named: the one answer to "who is late".

    StepArrays --order.last_of_groups--> LastOfGroup of each --late_ranks--> LateRank, worst first
    StepArrays, some steps --late_in--> for whom others wait in these

DDP's buckets are launched and waited for at the end, so the worst of them tells what a late rank
costs.  Training waits for units one after another, and all ranks leave each collective together: a
rank that is slow in every layer makes others wait at every layer (``_late_at_units``).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from ...records.units import percent
from .clock import last_rank
from .columns import Ints, bucket_keys
from .dense import Floats, StepArrays, medians, middle, sums
from .order import (
    OFTEN,
    LastOfGroup,
    joining,
    last_of_groups,
    waiting_ranks,
)

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
    the difference of two ranks' times.  ``lag_ns``: after the median rank, at that bucket.
    ``since``: the bucket at which it falls behind; the first one where it comes late already.
    ``held_ns``: how much longer than others' its hook's calls before ``bucket`` take.
    Of a sharded model ``margin_ns`` is the sum over the ``units`` collectives that the rank comes
    to last so often, and ``since`` the collective before ``bucket``.  Where collectives have a part
    of the ranks, ``members`` are those of ``bucket``, ``since`` is the last one before it in which
    all of these were together (``is_since_step_before``: of the step before), and ``margin_ns``
    is of the rank that waits longest.
    """

    rank: int
    bucket: int
    share: float
    margin_ns: float
    uncertainty_ns: float
    lag_ns: float
    since: int
    waiting: tuple[int, ...]
    held_ns: float
    is_late_from_the_start: bool
    units: int = 0
    members: tuple[int, ...] = ()
    is_since_step_before: bool = False


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


def late_ranks(arrays: StepArrays) -> tuple[LateRank, ...]:
    """Return the ranks that are last often, and not by chance (``often``), the worst first.

    Those whose margin is below ``WORTH`` of the period, and those that nobody waits for, are left
    out.
    """
    if arrays.is_sharded:
        return _late_at_units(arrays)
    found = (
        _at_buckets(arrays, one, i)
        for one in last_of_groups(arrays)
        for i in np.unique(one.last[one.last >= 0]).tolist()
    )
    return tuple(sorted(filter(None, found), key=lambda one: -one.margin_ns))


def _at_buckets(arrays: StepArrays, one: LastOfGroup, i: int) -> LateRank | None:
    """Return what is known of a rank; ``None``: it is last by chance, or nobody waits for it."""
    own = one.last == i
    worst = int(np.argmax(np.where(own, one.margin, 0.0).sum(axis=0) / one.seen))
    if not one.often_by(i)[worst]:
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
    waited = float(np.where(own[:, worst], after, 0.0).sum() / one.seen[worst])
    if waited < WORTH * middle(arrays.period):
        return None
    behind = _beyond_others(arrays.called, i)
    held = _beyond_others(arrays.column("launched_after"), i)
    since = int(np.nanargmax(np.diff(behind, prepend=0.0)[: worst + 1]))
    return LateRank(
        rank=arrays.ranks[i],
        bucket=int(arrays.buckets[worst]),
        share=float(own[:, worst].sum() / one.seen[worst]),
        margin_ns=waited,
        uncertainty_ns=middle(one.unsure[:, worst]),
        lag_ns=float(behind[worst]),
        since=int(arrays.buckets[since]),
        waiting=tuple(arrays.ranks[j] for j in waiting),
        held_ns=max(0.0, float(np.nansum(held[:worst]))),
        is_late_from_the_start=since == 0,
    )


def _beyond_others(values: Floats, i: int) -> Floats:
    """Return by how much a rank is beyond the median of the others at each bucket, (buckets,)."""
    return medians(values[i] - np.median(np.delete(values, i, axis=0), axis=0), axis=0)


def _late_at_units(arrays: StepArrays) -> tuple[LateRank, ...]:
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
    late = (_at_units(arrays, _Often(arrays, groups, i), i) for i in sorted(named))
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


def _at_units(arrays: StepArrays, found: _Often, i: int) -> LateRank | None:
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


def late_calls(arrays: StepArrays, groups: Sequence[LastOfGroup], late: LateRank) -> Ints:
    """Return ``bucket_keys`` of where others wait for a late rank, the longest wait first.

    ``groups``: ``last_of_groups``.  Of the buckets at which it is last often.
    """
    i, keys, margins = arrays.ranks.index(late.rank), [], []
    for one in groups:
        step, place = np.nonzero((one.last == i) & one.often_by(i))
        bucket = arrays.buckets[np.array(one.group.buckets)[place]]
        keys.append(bucket_keys(arrays.steps[step], bucket))
        margins.append(one.margin[step, place])
    found: Ints = np.concatenate(keys)[np.argsort(-np.concatenate(margins), kind="stable")]
    return found


def late_in(arrays: StepArrays, steps: Ints, least: float) -> tuple[int | None, float]:
    """Return for whom others wait in some steps, and by how much in one of them at most, ns.

    By ``least`` ns or more in all, and beyond what clocks may be off; ``None`` and 0 for nobody,
    and where ranks take turns.
    """
    found = _waited_for(arrays, steps)
    totals = found.sum(axis=1)
    i = int(np.argmax(totals))
    if not totals[i] or totals[i] < max(least, MOSTLY * totals.sum()):
        return None, 0.0
    if not arrays.is_sharded:
        ready, done = (_latest(times, steps) for times in (arrays.called, arrays.done))
        if len(waiting_ranks(done, ready, i)) < len(ready) - 1:
            return None, 0.0
    return arrays.ranks[i], float(found[i].max())


def _waited_for(arrays: StepArrays, steps: Ints) -> Floats:
    """Return what others wait for each rank in each of some steps, (ranks, steps)."""
    ranks = range(len(arrays.ranks))
    if not arrays.is_sharded:
        ready, unsure = (_latest(times, steps) for times in (arrays.called, arrays.uncertainty))
        last, margin, _ = last_rank(ready, unsure, np.isfinite(ready) & np.isfinite(unsure))
        return np.stack([np.where(last == i, margin, 0.0) for i in ranks])
    if arrays.is_on_device or len(ranks) < 2:
        return np.zeros((len(ranks), len(steps)))
    groups = last_of_groups(arrays)
    return np.stack([_for_rank(arrays, groups, i, steps) for i in ranks])


def _latest(times: Floats, steps: Ints) -> Floats:
    """Return the latest time of all buckets, of some steps."""
    found: Floats = times[:, steps].max(axis=2, initial=-np.inf)
    return found


def _for_rank(arrays: StepArrays, groups: Sequence[LastOfGroup], i: int, steps: Ints) -> Floats:
    """Return what the rank that waits longest for the i-th one waits in each of some steps."""
    found = np.zeros((len(arrays.ranks), len(steps)))
    for one in groups:
        if i in one.group.ranks:
            margins = np.where(one.last[steps] == i, one.margin[steps], 0.0)
            found[[*one.group.ranks]] += margins.sum(axis=1)
    longest: Floats = np.delete(found, i, axis=0).max(axis=0)
    return longest
