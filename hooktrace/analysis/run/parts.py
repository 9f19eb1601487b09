"""Where the time of each step goes, in parts that add up to it.

    StepArrays --each rank--> StepParts: the mean of the ranks

A step's period is what is exposed, what the hook's calls take of the training thread before, and
the rest.  What is exposed is told apart by bucket as ``tails`` does: the time until a
bucket is done, since the one before it was.  In that time the bucket is in one stage after another,
and these are the parts.  So no time is counted twice, though buckets overlap.

Until the last rank has its last gradient, all others wait for it, whatever is on the wire
meanwhile: their exposed time until then is waiting too, where clocks are known.

Of a sharded model what is exposed is what training waits for each unit's collective, the last so
many ns of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...records import STAGES
from ...records.cores import usable_cores
from .columns import Floats, Ints
from .dense import StepArrays, middle, sums
from .waits import PIECES, pieces_of

KINDS = (*(name for name in STAGES if name != "wire"), "wait", "transfer", "between")
"""What a bucket may be in while others have ended: its stages, wire as wait and transfer, or none.

Where nobody knows what of a wire stage is waiting, all of it is transfer."""

_KIND_OF_PIECE = np.array([KINDS.index("transfer" if x == "wire" else x) for x in PIECES])


class StepParts(NamedTuple):
    """Means over the ranks that know them, ns, NaN of steps of which none does; K kinds, B buckets.

    ``period``, ``exposed``: (S,).  ``exposed_in``: what is exposed in each kind, (K, S).
    ``compress``, ``calls``: of the training thread before its last bucket is ready, what the hook's
    calls take in compress, and in all else; 0 on a device, where calls only enqueue.  ``busy_in``:
    with at least one bucket in each kind, (K, S).  ``shares``: each bucket's share of what is
    exposed in ordinary steps, (B,): zeros where nothing is exposed, NaN where no step tells.
    """

    period: Floats
    exposed: Floats
    exposed_in: Floats
    compress: Floats
    calls: Floats
    busy_in: Floats
    shares: Floats

    def of_known(self) -> StepParts:
        """Return the same of the steps of which all is known."""
        at = ~np.isnan(self.period + self.exposed)
        return StepParts(
            self.period[at], self.exposed[at], self.exposed_in[:, at], self.compress[at],
            self.calls[at], self.busy_in[:, at], self.shares,
        )  # fmt: skip

    @property
    def exposed_kinds(self) -> dict[str, float]:
        """What is exposed of a step in each kind that occurs, ns, the mean over steps."""
        known = ~np.isnan(self.exposed)
        ns = self.exposed_in[:, known].sum(axis=1) / max(1, np.count_nonzero(known))
        return {kind: one for kind, one in zip(KINDS, ns.tolist(), strict=True) if one > 0}


def tails(arrays: StepArrays) -> Floats:
    """Return the exposed ns that each bucket adds, (ranks, steps, buckets).

    When backward has ended the backend finishes what is left, one bucket after another; the time
    until a bucket is done, since the one before it was, is what that bucket adds.  A step's sum is
    its exposed time.  Of a sharded model each unit adds what training waited for it.  NaN
    where a step has no such bucket, or does not tell.
    """
    if arrays.is_sharded:
        return arrays.column("exposed") + 0 * arrays.exposed[..., None]
    all_done = np.fmax.reduce(arrays.done, axis=2, initial=np.nan)
    left = np.maximum(arrays.done - (all_done - arrays.exposed)[..., None], 0.0)
    order = np.argsort(left, axis=2, kind="stable")  # NaN comes last
    found: Floats = np.empty_like(left)
    added = np.diff(np.take_along_axis(left, order, axis=2), axis=2, prepend=0.0)
    np.put_along_axis(found, order, added, axis=2)
    return found


def _shares(every: Floats) -> Floats:
    """Return ``StepParts.shares`` by what each bucket adds, (R, S, B).

    Ordinary is the middle half of those steps that tell, of all ranks, by exposed time: the tail of
    a slow step has causes of its own.
    """
    exposed = sums(every)
    low, high = middle(exposed, 0.25), middle(exposed, 0.75)
    of_bucket = sums(every[(exposed >= low) & (exposed <= high)].T)
    return of_bucket / (np.nansum(of_bucket) or 1.0)


def step_parts(arrays: StepArrays, *, busy_of: Sequence[str] = KINDS) -> StepParts:
    """Return the parts of a model's settled steps; ``busy_of``: of which kinds ``busy_in`` is."""
    added, call, until = tails(arrays), _calls(arrays), _until_last_rank(arrays)
    shares = _shares(added)
    np.nan_to_num(added, copy=False)
    is_there = ~np.isnan(arrays.done).all(axis=2)
    known = is_there & (np.abs(added.sum(axis=2) - arrays.exposed) < 1)
    # Of the last step no rank knows the period; else those that do are meant.
    known &= ~np.isnan(arrays.period) | np.isnan(arrays.period).all(axis=0)

    shape, kinds, lock = (len(KINDS), added.shape[1]), [*map(KINDS.index, busy_of)], Lock()
    totals: list[Floats] = [np.zeros(shape), np.zeros(shape), np.zeros(shape[1])]

    def add(i: int) -> None:
        inside, busy, compress = _of_rank(
            arrays, i, added[i], call[i], until=until[i], busy_of=kinds
        )
        own = known[i].astype(float)
        with lock:
            totals[0] += inside * own
            totals[1] += busy
            totals[2] += compress * own

    with ThreadPoolExecutor(usable_cores()) as pool:  # numpy works outside of the interpreter lock
        [*pool.map(add, range(len(arrays.ranks)))]
    exposed_in, busy_in, compress = totals
    count, there = known.sum(axis=0), is_there.sum(axis=0)
    share = np.where(count > 0, 1 / np.maximum(count, 1), np.nan)

    def mean(values: Floats) -> Floats:
        found: Floats = np.where(known, values, 0.0).sum(axis=0) * share
        return found

    return StepParts(
        period=mean(arrays.period),
        exposed=mean(arrays.exposed),
        exposed_in=exposed_in * share,
        compress=compress * share,
        calls=mean(call.sum(axis=2)) - compress * share,
        busy_in=busy_in / np.where(there > 0, there, np.nan),
        shares=shares,
    )


def _calls(arrays: StepArrays) -> Floats:
    """Return what calls take of the training thread before the last gradient, (R, S, B)."""
    if arrays.is_on_device or arrays.is_sharded:  # whose calls are exposed themselves
        return np.zeros_like(arrays.ready)
    before = arrays.ready < arrays.last_ready[..., None]
    return np.nan_to_num(np.where(before, arrays.column("launched_after"), 0.0), copy=False)


def _until_last_rank(arrays: StepArrays) -> Floats:
    """Return until when each rank has others to wait for, (R, S): -inf where it has none.

    Of a sharded model the waits of its collectives are all: each is waited for by itself.
    """
    if arrays.wait_unknown or arrays.waits.why_no_clock or arrays.is_sharded:
        return np.full(arrays.exposed.shape, -np.inf)
    unsure = np.fmax.reduce(arrays.uncertainty, axis=2, initial=np.nan)
    surely = arrays.last_ready - np.nan_to_num(unsure)
    until = np.full(surely.shape, -np.inf)
    for own in arrays.groups:
        latest = np.fmax.reduce(surely[own], axis=0)
        until[own] = np.where(surely[own] < latest, latest, -np.inf)
    return until


def _of_rank(
    arrays: StepArrays, i: int, added: Floats, call: Floats, *, until: Floats, busy_of: list[int]
) -> tuple[Floats, Floats, Floats]:
    """Return ns of a rank: in the time that buckets add, busy, and in the hook's calls.

    By kind (K, S); with at least one bucket in each kind of ``busy_of``, (K, S); compress (S,).
    """
    ready, kinds, steps = arrays.ready[i], len(KINDS), len(added)
    track, rows, step, bucket = arrays.rows_of_rank(i)
    timed = ~track.buckets.having("untimed")[rows]
    found = pieces_of(track, rows[timed], arrays.waits.waited[i])
    kind, start, end = _KIND_OF_PIECE[found.kind], found.start, found.end
    step, bucket = step[timed][found.of], bucket[timed][found.of]
    # What a bucket adds is the last part of it, of which the first may be until the last rank.
    took = np.nan_to_num(arrays.done[i] - ready)
    late = np.nan_to_num(until[:, None] - ready, neginf=0.0)
    waited = np.clip(np.minimum(late, took) - (took - added), 0, None)
    since = (took - added + waited)[step, bucket]
    ns = np.clip(np.minimum(end, took[step, bucket]) - np.maximum(start, since), 0, None)
    place = np.ravel_multi_index((kind, step, bucket), (kinds, *added.shape))
    inside = _sums(place, ns, kinds * added.size).reshape(kinds, *added.shape)
    inside[KINDS.index("wait")] += waited
    inside[KINDS.index("between")] = np.clip(added - inside.sum(axis=0), 0, None)
    at = (ready - np.fmin.reduce(ready, axis=1, initial=np.nan)[:, None])[step, bucket]
    own = ~np.isnan(at) & np.isin(kind, busy_of)
    group, begun, ended = (kind * steps + step)[own], (at + start)[own], (at + end)[own]
    busy = union_of_groups(group, begun, ended, kinds * steps).reshape(kinds, steps)
    own = kind == KINDS.index("compress")
    in_call = np.minimum(end, call[step, bucket]) - start
    return inside.sum(axis=2), busy, _sums(step[own], in_call[own].clip(min=0), steps)


def union_of_groups(
    group: Ints, start: npt.NDArray[Any], end: npt.NDArray[Any], groups: int
) -> Floats:
    """Return the length of the union of the intervals of each of ``groups`` groups, (groups,).

    ``group``, ``start``, ``end``: of each interval, in whatever order; one that ends before it
    begins has no length.
    """
    if not len(group):
        return np.zeros(groups)
    low, length = start.min(), end.max() - start.min() + 1
    # One key is sorted in half the time of two; a double holds it exactly below 2^53.
    if groups * length < 1 << 52:
        order = np.argsort(group * length + (start - low), kind="stable")
    else:
        order = np.lexsort((start, group))
    group, start, end = group[order], start[order], np.maximum(start, end)[order]
    firsts = np.flatnonzero(np.diff(group, prepend=-1))
    begun = np.repeat(start[firsts], np.diff(np.append(firsts, len(group))))
    # Each group in a stretch of its own, so that one running maximum serves all of them.
    start, end = start - begun, end - begun
    apart = group * (end.max() + 1)
    start, end = start + apart, end + apart
    until = np.maximum.accumulate(np.append(start[:1], end[:-1]))
    covered = np.maximum(end - np.maximum(start, until), 0)
    return np.bincount(group, weights=covered, minlength=groups).astype(np.float64)


def _sums(place: Ints, values: Floats | Ints, count: int) -> Floats:
    return np.bincount(place, values, count).astype(np.float64)
