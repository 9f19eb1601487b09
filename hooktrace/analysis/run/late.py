"""Which ranks others wait for often enough to be named: the one answer to "who is late".

    StepArrays --order.last_of--> Last --late_ranks--> LateRank, worst first
    StepArrays, some steps --late_in--> for whom others wait in these

DDP's buckets are launched and waited for at the end, so the worst of them tells what a late rank
costs.  No rank of a sharded model is named: on a device the host's calls do not tell when a rank
comes to a unit's collective, and training waits at each of these.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from ...records.units import percent
from .clock import last_rank
from .columns import Ints, bucket_keys
from .dense import Floats, StepArrays, medians, middle, sums
from .order import OFTEN, Last, last_of, waiting_ranks

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
    the difference of two ranks' times.  ``arrival_delay_ns``: after the median rank, at the bucket
    ``since``, at which it falls behind; the first one where it comes late already.
    ``held_ns``: how much longer than others' its hook's calls before ``bucket`` take.
    """

    rank: int
    bucket: int
    share: float
    margin_ns: float
    uncertainty_ns: float
    arrival_delay_ns: float
    since: int
    waiting: tuple[int, ...]
    held_ns: float
    is_late_from_the_start: bool


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


def late_ranks(arrays: StepArrays) -> tuple[LateRank, ...]:
    """Return the ranks that are last often, and not by chance (``often``), the worst first.

    Of a ``sample``: of slow steps a rank that is late in these would be last in a large share.
    Those whose margin is below ``WORTH`` of the period, and those that nobody waits for, are left
    out.
    """
    if arrays.is_sharded or len(arrays.ranks) < 2:
        return ()
    last = last_of(arrays)
    found = (_late_rank(arrays, last, i) for i in np.unique(last.rank[last.rank >= 0]).tolist())
    return tuple(sorted(filter(None, found), key=lambda one: -one.margin_ns))


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
        since=int(arrays.buckets[since]),
        waiting=tuple(arrays.ranks[j] for j in waiting),
        held_ns=max(0.0, float(np.nansum(held[:worst]))),
        is_late_from_the_start=since == 0,
    )


def _beyond_others(values: Floats, i: int) -> Floats:
    """Return by how much a rank is beyond the median of the others at each bucket, (buckets,)."""
    return medians(values[i] - np.median(np.delete(values, i, axis=0), axis=0), axis=0)


def late_calls(arrays: StepArrays, late: Sequence[LateRank]) -> list[Ints]:
    """Return ``bucket_keys`` of where others wait for each late rank, the longest wait first.

    Of the buckets at which it is last often.
    """
    last, found = last_of(arrays), []
    for i in (arrays.ranks.index(one.rank) for one in late):
        step, bucket = np.nonzero((last.rank == i) & last.often_by(i))
        order = np.argsort(-last.margin[step, bucket], kind="stable")
        found.append(bucket_keys(arrays.steps[step], arrays.buckets[bucket])[order])
    return found


def late_in(arrays: StepArrays, steps: Ints, least: float) -> tuple[int | None, float]:
    """Return for whom others wait in some steps, and by how much in one of them at most, ns.

    By ``least`` ns or more in all, and beyond what clocks may be off; ``None`` and 0 for nobody,
    and where ranks take turns.
    """
    nobody = None, 0.0
    if arrays.is_sharded:
        return nobody
    ready, unsure, done = (
        times[:, steps].max(axis=2, initial=-np.inf)
        for times in (arrays.called, arrays.uncertainty, arrays.done)
    )
    last, margin, _ = last_rank(ready, unsure, np.isfinite(ready) & np.isfinite(unsure))
    found = np.where(last == np.arange(len(ready))[:, None], margin, 0.0)
    totals = found.sum(axis=1)
    i = int(np.argmax(totals))
    if not totals[i] or totals[i] < max(least, MOSTLY * totals.sum()):
        return nobody
    if len(waiting_ranks(done, ready, i)) < len(ready) - 1:
        return nobody
    return arrays.ranks[i], float(found[i].max())
