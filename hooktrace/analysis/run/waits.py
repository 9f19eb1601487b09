"""What of a collective is waiting for its last rank, and what is transfer: the one answer.

    Run, model --waits--> Waits: of each stage ns of waiting, and for whom
    Waits.by_bucket--> the same of a rank's buckets
    Run --process_groups--> of each row in each rank's ``buckets`` the group that it is in

A collective cannot end before its last rank has begun it.  So a rank's wire stage is *wait* until
the last rank begins its own, and *transfer* from then on.  The k-th wire stage of a bucket is the
same collective on all ranks that have as many of them.  Where clocks do not tell who began first,
the wait is what a rank's stage is longer than the shortest one of the same collective, since a
collective ends on all ranks at once; nobody is named then.  So it is on devices: their times are
placed where the host called a step's first hook, and each host runs ahead of its device by another
time.  Only ranks of one process group wait for each other: a unit's layout says which ranks it has,
if these are a range, and of another one nothing is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...records import STAGES, Members
from ...records.units import named_ranks
from .clock import last_rank
from .columns import UNKNOWN, Bools, Ints, RankTrack, bucket_keys, packed
from .run import Run, once

_WIRE = STAGES.index("wire")
_ROUND_BITS = 6
_MAX_ROUNDS = (1 << _ROUND_BITS) - 1
_AT_ONCE = 4096
"""Collectives that are worked on together, so that what is in between stays small."""


@once
def process_groups(run: Run) -> tuple[list[Ints], list[Members | None]]:
    """Return of each row in each rank's ``buckets`` a place among the groups, and these.

    ``UNKNOWN`` where no file tells the group.  The first one is ``None``, all ranks; the others
    have a part of them.
    """
    found: list[Ints] = []
    groups: list[Members | None] = [None]
    for track in run.tracks:
        of_facts = np.zeros(len(track.facts), np.int64)
        for i, facts in enumerate(track.facts):
            one = facts.members
            if (one is None and facts.unit is not None) or (one and track.rank not in range(*one)):
                of_facts[i] = UNKNOWN
            elif one is not None and len(range(*one)) != run.world_size:
                if one not in groups:
                    groups.append(one)
                of_facts[i] = groups.index(one)
        found.append(of_facts[track.buckets.facts])
    return found, groups


class Waited(NamedTuple):
    """``ns``: how long wire stages waited, from their start; ``last``: for whom.

    ``last`` is a row among the ranks, ``UNKNOWN`` where the clocks tell it from no other.
    """

    ns: Ints
    last: Ints


@dataclass(frozen=True, slots=True)
class Waits:
    """The waiting in the wire stages of one model.

    ``waited``: of each row in each rank's ``stages``, ``UNKNOWN`` where it is not known.
    ``why_no_clock``: a clause, where it rests on what stages take and not on clocks, so that nobody
    is named.  ``why_unknown``: a clause, where nothing is known.
    """

    tracks: list[RankTrack]
    waited: list[Waited]
    why_no_clock: str | None
    why_unknown: str | None

    def by_bucket(self, i: int) -> Waited:
        """Return it of each of the ``i``-th rank's buckets, where it is known of all its stages.

        Of several stages that waited, ``last`` is for whom the longest one did.
        """
        track, count = self.tracks[i], len(self.tracks[i].buckets)
        rows = np.flatnonzero(track.stages.name == _WIRE)
        of, (ns, last) = track.bucket_of_stages()[rows], (one[rows] for one in self.waited[i])
        waited = np.bincount(of, np.where(ns == UNKNOWN, np.nan, ns), minlength=count)
        waited = np.where(np.bincount(of, minlength=count) > 0, waited, np.nan)
        order = np.argsort(ns, kind="stable")  # of several the longest comes last
        whom = np.full(count, UNKNOWN)
        whom[of[order]] = np.where(ns > 0, last, UNKNOWN)[order]
        ns = np.where(np.isnan(waited), UNKNOWN, waited).astype(np.int64)
        return Waited(packed(ns), packed(whom))


class Pieces(NamedTuple):
    """Stages of some buckets, in their order; a wire stage whose wait is known is two pieces.

    ``kind``: an index into ``PIECES``.  ``of``: the place of the bucket; ``row``: of the stage in
    the rank's ``stages``.  ``start``, ``end``: ns after the bucket's ready.  ``waited``, ``last``:
    the stage's, as in ``Waited``.
    """

    kind: Ints
    of: Ints
    row: Ints
    start: Ints
    end: Ints
    waited: Ints
    last: Ints

    def at(self, places: Any) -> Pieces:
        """Return some of them."""
        return Pieces(*(column[places] for column in self))


PIECES = (*STAGES, "wait")
"""What a piece is: a stage, ``wait`` and then the transfer, which is ``wire``."""


def pieces_of(track: RankTrack, rows: Ints, waited: Waited) -> Pieces:
    """Return the pieces of some rows in ``buckets``; ``waited``: of each row in ``stages``."""
    stages = track.stages
    row, of = track.stages_of(rows)
    start, kind = stages.start[row].astype(np.int64), stages.name[row].astype(np.int64)
    end, (ns, last) = np.maximum(stages.end[row], start), (one[row] for one in waited)
    split = ns != UNKNOWN
    twice = np.repeat(np.arange(len(row)), 1 + split)
    found = Pieces(kind, of, row, start, end, ns, last).at(twice)
    first = np.flatnonzero(split) + np.arange(np.count_nonzero(split))
    found.kind[first] = PIECES.index("wait")
    turn = np.minimum(start + ns, end)[split]
    found.end[first] = found.start[first + 1] = turn
    return found


class _Wires(NamedTuple):
    """The wire stages of one rank: row in ``stages``, key of the collective, times in one clock."""

    rows: Ints
    keys: Ints
    start: Ints
    end: Ints
    unsure: Ints


@once
def waits(run: Run, model: str) -> Waits:
    """Return what the ranks of a model waited for each other, in collectives that all were in."""
    tracks, (group_of, groups) = run.tracks, process_groups(run)
    ours = [i for i, t in enumerate(tracks) if t.is_of(t.buckets, model).any()]
    why_no_clock = _why_no_clock(run, ours, model)
    why_unknown = _why_unknown(run, ours, model)
    found = [Waited(*np.full((2, len(track.stages)), UNKNOWN, np.int32)) for track in tracks]
    for number, members in enumerate(groups if why_unknown is None else ()):
        within = [i for i in ours if members is None or tracks[i].rank in range(*members)]
        if members is None and len(groups) > 1:  # one that is no range, too: others are not in it
            within = [i for i in within if (group_of[i] == number).any()] or within
        if members is not None and len(within) < len(range(*members)):
            continue  # the last one may be a rank that tells nothing of this model
        wires = _of_all([_wires_of(run, i, model, group_of[i] == number) for i in within])
        for begin in range(0, len(wires[0].keys), _AT_ONCE):
            part = [_Wires(*(c[begin : begin + _AT_ONCE] for c in one)) for one in wires]
            start, end, unsure = map(np.stack, list(zip(*part, strict=True))[2:])
            ns, last = end - start - (end - start).min(axis=0), np.full(len(part[0].keys), UNKNOWN)
            if why_no_clock is None:
                ns, last = _by_clocks(start, end, unsure)
            last = np.where(last >= 0, np.asarray(within)[last], UNKNOWN)
            for i, one, own_ns in zip(within, part, ns, strict=True):
                of = found[i]
                if own_ns.max(initial=0) > np.iinfo(of.ns.dtype).max:
                    found[i] = of = of._replace(ns=of.ns.astype(np.int64))
                of.ns[one.rows] = own_ns
                of.last[one.rows] = np.where(own_ns == UNKNOWN, UNKNOWN, last)
    return Waits(tracks, found, why_no_clock, why_unknown)


def _of_all(wires: list[_Wires]) -> list[_Wires]:
    """Return of each rank the collectives that all have; as a rule they are the same."""
    keys = wires[0].keys
    for other in wires[1:]:
        if not np.array_equal(keys, other.keys):  # to intersect costs as much as all the rest
            keys = np.intersect1d(keys, other.keys, assume_unique=True)
    if all(len(one.keys) == len(keys) for one in wires):
        return wires
    return [_Wires(*(c[np.searchsorted(one.keys, keys)] for c in one)) for one in wires]


def _why_no_clock(run: Run, ours: list[int], model: str) -> str | None:
    tracks = [run.tracks[i] for i in ours]
    if any(track.rank in run.unaligned for track in tracks):
        return f"nobody measured the clock of {named_ranks(run.unaligned)}"
    if any((t.is_of(t.buckets, model) & t.buckets.having("device")).any() for t in tracks):
        return "no clock ties the times of one device to another's"
    return None


def _why_unknown(run: Run, ours: list[int], model: str) -> str | None:
    size, tracks = run.world_size, [run.tracks[i] for i in ours]
    if ours and size == 1:
        return None  # it waits for nobody
    if size is not None and size > len(run.tracks):
        count = f"{len(run.tracks)} of {size} ranks"
        return f"{count} have a file here, and the last one may be among the others"
    if len(ours) < 2:
        return f"the files have buckets of {'one rank alone' if ours else 'no rank'}"
    if not all((track.stages.name == _WIRE).any() for track in tracks):
        return "the collectives of a plain hook are not seen"
    group_of, _ = process_groups(run)
    own = (group_of[i][t.is_of(t.buckets, model)] for i, t in zip(ours, tracks, strict=True))
    if all((group == UNKNOWN).all() for group in own):  # as of a group that is no range
        return "a part of the ranks is in each collective, and the files do not say which part"
    return None


def _wires_of(run: Run, i: int, model: str, among: Bools) -> _Wires:
    """Return a rank's wire stages in some of its buckets, each collective once, by its key.

    Where a file has a collective twice, nobody knows which of them the others' is.
    """
    (track, clock), columns = run.ranks[i], run.tracks[i].buckets
    timed = track.is_of(columns, model) & ~columns.having("untimed") & among
    rows = np.flatnonzero((track.stages.name == _WIRE) & np.repeat(timed, columns.stages))
    of = track.bucket_of_stages()[rows]
    first = np.flatnonzero(np.diff(of, prepend=-1))
    counts = np.diff(np.append(first, len(of)))
    turn, count = np.arange(len(of)) - np.repeat(first, counts), np.repeat(counts, counts)
    keys = bucket_keys(columns.step[of], columns.bucket[of]) << (2 * _ROUND_BITS)
    keys |= turn << _ROUND_BITS | np.minimum(count, _MAX_ROUNDS)
    place, times = np.arange(len(keys)), np.ones(1, np.int64)
    if not (np.diff(keys) > 0).all():
        _, place, times = np.unique(keys, return_index=True, return_counts=True)
    place = place[(times == 1) & ((keys[place] & _MAX_ROUNDS) < _MAX_ROUNDS)]
    of, rows = of[place], rows[place]
    ready, unsure = clock.common(columns.ready[of]), clock.uncertainty(columns.called[of])
    stages = track.stages
    start, end = ready + stages.start[rows], ready + stages.end[rows]
    return _Wires(rows, keys[place], start, end, unsure)


def _by_clocks(start: Ints, end: Ints, unsure: Ints) -> tuple[Ints, Ints]:
    """Return ns of waiting, (ranks, keys), and the last rank of each key."""
    last = last_rank(start, unsure, np.ones(start.shape, np.bool_))[0]
    latest = start.argmax(axis=0)[None]
    begun = np.take_along_axis(start, latest, axis=0)
    margin = unsure + np.take_along_axis(unsure, latest, axis=0)
    ns = np.where(begun - start > margin, np.minimum(begun - start, end - start), 0)
    # Whoever was done before the last one began did not wait for it: not all ranks were in it.
    apart = np.any(end + margin < begun, axis=0)
    return np.where(apart, UNKNOWN, ns), np.where(apart, UNKNOWN, last)
