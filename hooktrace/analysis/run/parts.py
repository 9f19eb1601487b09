"""Where the time of each step goes, in parts that add up to it.

    StepArrays --each rank--> StepParts: the mean of the ranks; or what is exposed, by kind

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

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from typing import NamedTuple, TypeVar

import numpy as np

from ...records import STAGES
from ...records.cores import usable_cores
from .columns import Bools, Ints
from .dense import Floats, StepArrays, middle, sums
from .waits import PIECES, pieces_of

KINDS = (*(name for name in STAGES if name != "wire"), "wait", "transfer", "between")
"""What a bucket may be in while others have ended: its stages, wire as wait and transfer, or none.

Where nobody knows what of a wire stage is waiting, all of it is transfer."""

_T = TypeVar("_T")
_KIND_OF_PIECE = np.array([KINDS.index("transfer" if x == "wire" else x) for x in PIECES])


class StepParts(NamedTuple):
    """Means over the ranks that know them, ns; K kinds, S steps, B buckets.

    ``period``, ``exposed``: (S,).  ``exposed_in``: what is exposed, (K, S, B).  ``compress``,
    ``calls``: of the training thread before its last bucket is ready, what the hook's calls take in
    compress, and in all else; 0 on a device, where calls only enqueue.  ``busy_in``: with at least
    one bucket in each kind, (K, S).  ``known``: of which steps all of it is known, (S,).
    """

    period: Floats
    exposed: Floats
    exposed_in: Floats
    compress: Floats
    calls: Floats
    busy_in: Floats
    known: Bools

    def of_known(self) -> StepParts:
        """Return the same of the steps of which all is known."""
        at = self.known
        return StepParts(
            self.period[at], self.exposed[at], self.exposed_in[:, at], self.compress[at],
            self.calls[at], self.busy_in[:, at], at[at],
        )  # fmt: skip


class _Pieces(NamedTuple):
    """``waits.Pieces`` of one rank, by place (steps, buckets), of ``KINDS``; ns after ready."""

    kind: Ints
    step: Ints
    bucket: Ints
    start: Ints
    end: Ints

    def of_kind(self, kind: str) -> _Pieces:
        """Return those of one kind."""
        own = self.kind == KINDS.index(kind)
        return _Pieces(*(values[own] for values in self))


def _is_known(arrays: StepArrays, added: Floats) -> Bools:
    """Return of which steps it is known what buckets add, (R, S)."""
    is_there = ~np.isnan(arrays.done).all(axis=2)
    found: Bools = is_there & (np.abs(added.sum(axis=2) - arrays.exposed) < 1)
    return found


def tails(arrays: StepArrays) -> Floats:
    """Return the exposed ns that each bucket adds, (ranks, steps, buckets).

    When backward has ended the backend finishes what is left, one bucket after another; the time
    until a bucket is done, since the one before it was, is what that bucket adds.  A step's sum is
    its exposed time.  Of a sharded model each unit adds what training waited for it.  NaN
    where a step has no such bucket, or does not tell.
    """
    if arrays.is_sharded:
        return arrays.exposed_in + 0 * arrays.exposed[..., None]
    all_done = np.fmax.reduce(arrays.done, axis=2, initial=np.nan)
    left = np.maximum(arrays.done - (all_done - arrays.exposed)[..., None], 0.0)
    order = np.argsort(left, axis=2, kind="stable")  # NaN comes last
    found: Floats = np.empty_like(left)
    added = np.diff(np.take_along_axis(left, order, axis=2), axis=2, prepend=0.0)
    np.put_along_axis(found, order, added, axis=2)
    return found


def _shares(added: Floats) -> Floats:
    """Return each bucket's share of what buckets add in ordinary steps, (buckets,).

    Ordinary is the middle half of those that tell, by exposed time: the tail of a slow step has
    causes of its own.  Zeros where nothing is exposed, NaN where no step tells.
    """
    exposed = sums(added)
    low, high = middle(exposed, 0.25), middle(exposed, 0.75)
    of_bucket = sums(added[(exposed >= low) & (exposed <= high)].T)
    return of_bucket / (np.nansum(of_bucket) or 1.0)


class Exposure(NamedTuple):
    """What is exposed, and when something was transferred.

    ``kinds``: what is exposed of a step in each kind that occurs, ns, the mean over ranks and
    steps; empty where no step tells.  ``shares``: each bucket's of the exposed time, (B,).
    ``transfer_busy``: ns with at least one transfer under way, (R, S); NaN where waits are unknown.
    """

    kinds: dict[str, float]
    shares: Floats
    transfer_busy: Floats


def _of_each_rank(
    arrays: StepArrays, added: Floats, of: Callable[[int, _Pieces, Floats], _T]
) -> Iterator[_T]:
    """Yield what ``of`` makes of each rank: its place, pieces, and what they are of ``added``."""
    until = _until_last_rank(arrays)

    def of_rank(i: int) -> _T:
        pieces = _pieces(arrays, i)
        return of(i, pieces, _inside_tails(arrays, i, pieces, added[i], until[i]))

    with ThreadPoolExecutor(usable_cores()) as pool:  # numpy works outside of the interpreter lock
        yield from pool.map(of_rank, range(len(arrays.ranks)))


def exposure(arrays: StepArrays) -> Exposure:
    """Return what is exposed of a model's settled steps."""
    every, is_wait_known = tails(arrays), arrays.wait_unknown is None
    added = np.nan_to_num(every)
    known = _is_known(arrays, added)

    def of_rank(i: int, pieces: _Pieces, inside: Floats) -> tuple[Floats, Floats | float]:
        ns = inside[:, known[i]].sum(axis=(1, 2))
        if not is_wait_known:
            return ns, np.nan
        transfers = _busy(pieces.of_kind("transfer"), arrays.ready[i])[KINDS.index("transfer")]
        return ns, np.where(np.isnan(arrays.waited[i]).all(axis=1), np.nan, transfers)

    ns, busy = np.zeros(len(KINDS)), np.full(arrays.exposed.shape, np.nan)
    for i, (own_ns, own_busy) in enumerate(_of_each_rank(arrays, added, of_rank)):
        ns += own_ns
        busy[i] = own_busy
    count = max(1, int(np.count_nonzero(known)))
    kinds = {kind: one / count for kind, one in zip(KINDS, ns.tolist(), strict=True) if one > 0}
    return Exposure(kinds, _shares(every), busy)


def step_parts(arrays: StepArrays) -> StepParts:
    """Return the parts of a model's settled steps."""
    added, call = np.nan_to_num(tails(arrays)), _calls(arrays)
    known = _is_known(arrays, added) & ~np.isnan(arrays.period)

    def of_rank(i: int, pieces: _Pieces, inside: Floats) -> tuple[Floats, Floats, Floats]:
        own = known[i].astype(float)
        busy = _busy(pieces, arrays.ready[i])
        return inside * own[:, None], busy * own, _compress_in_calls(pieces, call[i]) * own

    exposed_in, busy_in, compress = reduce(
        lambda sums, own: (sums[0] + own[0], sums[1] + own[1], sums[2] + own[2]),
        _of_each_rank(arrays, added, of_rank),
    )
    count = known.sum(axis=0)
    share = np.where(count > 0, 1 / np.maximum(count, 1), np.nan)

    def mean(values: Floats) -> Floats:
        found: Floats = np.where(known, values, 0.0).sum(axis=0) * share
        return found

    return StepParts(
        period=mean(arrays.period),
        exposed=mean(arrays.exposed),
        exposed_in=exposed_in * share[:, None],
        compress=compress * share,
        calls=mean(call.sum(axis=2)) - compress * share,
        busy_in=np.where(count > 0, busy_in * share, np.nan),
        known=count > 0,
    )


def _calls(arrays: StepArrays) -> Floats:
    """Return what calls take of the training thread before the last gradient, (R, S, B)."""
    if arrays.is_on_device or arrays.is_sharded:  # whose calls are exposed themselves
        return np.zeros_like(arrays.ready)
    before = arrays.ready < arrays.last_ready[..., None]
    return np.nan_to_num(np.where(before, arrays.column("launched_after"), 0.0))


def _pieces(arrays: StepArrays, i: int) -> _Pieces:
    track, rows, step, bucket = arrays.rows_of_rank(i)
    timed = ~track.buckets.having("untimed")[rows]
    rows, step, bucket = rows[timed], step[timed], bucket[timed]
    found = pieces_of(track, rows, arrays.waits.waited[i])
    kind, of = _KIND_OF_PIECE[found.kind], found.of
    return _Pieces(kind, step[of], bucket[of], found.start, found.end)


def _until_last_rank(arrays: StepArrays) -> Floats:
    """Return until when each rank has others to wait for, (R, S): -inf where it has none.

    Of a sharded model the waits of its collectives are all: each is waited for by itself.
    """
    if arrays.wait_unknown or arrays.waits.why_no_clock or arrays.is_sharded:
        return np.full(arrays.exposed.shape, -np.inf)
    unsure = np.fmax.reduce(arrays.uncertainty, axis=2, initial=np.nan)
    surely = arrays.last_ready - np.nan_to_num(unsure)
    latest = np.fmax.reduce(surely, axis=0)
    return np.where(surely < latest, latest, -np.inf)


def _inside_tails(
    arrays: StepArrays, i: int, pieces: _Pieces, added: Floats, until: Floats
) -> Floats:
    """Return the ns of each kind in the time that each bucket of a rank adds, (K, S, B)."""
    shape = len(KINDS), *added.shape
    took = np.nan_to_num(arrays.done[i] - arrays.ready[i])
    late = np.nan_to_num(until[:, None] - arrays.ready[i], neginf=0.0)
    waited = np.clip(np.minimum(late, took) - (took - added), 0, None)
    done = took[pieces.step, pieces.bucket]
    since = (took - added + waited)[pieces.step, pieces.bucket]
    inside = np.clip(np.minimum(pieces.end, done) - np.maximum(pieces.start, since), 0, None)
    place = np.ravel_multi_index((pieces.kind, pieces.step, pieces.bucket), shape)
    found = _sums(place, inside, int(np.prod(shape))).reshape(shape)
    found[KINDS.index("wait")] += waited
    found[KINDS.index("between")] = np.clip(added - found.sum(axis=0), 0, None)
    return found


def _busy(pieces: _Pieces, ready: Floats) -> Floats:
    """Return the ns in which at least one bucket is in a kind, (K, S): lengths of unions."""
    steps = len(ready)
    origin = np.fmin.reduce(ready, axis=1, initial=np.nan)
    at = (ready - origin[:, None])[pieces.step, pieces.bucket]
    known = ~np.isnan(at)
    start, end = ((at + times)[known] for times in (pieces.start, pieces.end))
    group = (pieces.kind * steps + pieces.step)[known]
    return union_of_groups(group, start, end, len(KINDS) * steps).reshape(len(KINDS), steps)


def union_of_groups(group: Ints, start: Floats | Ints, end: Floats | Ints, groups: int) -> Floats:
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


def _compress_in_calls(pieces: _Pieces, call: Floats) -> Floats:
    """Return the ns of compress in the calls of a rank, (S,)."""
    own = pieces.of_kind("compress")
    inside = np.minimum(own.end, call[own.step, own.bucket]) - own.start
    return _sums(own.step, np.clip(inside, 0, None), len(call))


def _sums(place: Ints, values: Floats, count: int) -> Floats:
    return np.bincount(place, values, count).astype(np.float64)


def break_even(saved_bytes: float | None, added_ns: float | None) -> float | None:
    """Return the bandwidth, bytes per second; ``None`` where nothing is saved, or nothing added."""
    if not saved_bytes or not added_ns or saved_bytes < 0 or added_ns < 0:
        return None
    return saved_bytes / added_ns * 1e9
