"""Which ranks are together in a collective: all, or of hybrid sharding a part of them.

    RankTrack, world size --groups_of--> of each row in ``buckets``, the group that it is in
    Run --group_numbers--> the same, by numbers that all ranks share
    tracks of all ranks --ranks_within--> each group's ranks, by their rows in the run

A unit's layout says which ranks its process group has, if these are a range; of another one it is
not known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ...records import Members, Unit
from .columns import UNKNOWN, Bools, Ints, RankTrack
from .run import Run, once


class RowGroups(NamedTuple):
    """``of``: of each row in ``buckets`` a place in ``members``, ``UNKNOWN`` where nobody knows.

    ``members``: groups that have a part of the ranks, behind ``None`` for all of them.
    """

    of: Ints
    members: tuple[Members | None, ...]

    def having(self, members: Members | None) -> Bools:
        """Return which rows are in a group."""
        if members not in self.members:
            return np.zeros(len(self.of), bool)
        found: Bools = self.of == self.members.index(members)
        return found


def groups_of(track: RankTrack, world_size: int | None) -> RowGroups:
    """Return which group each row in ``buckets`` is in.

    DDP's buckets are all ranks', whose process group nobody splits without saying so.
    """
    members: list[Members | None] = [None]
    of_facts = np.zeros(len(track.facts), np.int64)
    for i, facts in enumerate(track.facts):
        one = facts.members
        if (one is None and facts.unit is not None) or (one and track.rank not in range(*one)):
            of_facts[i] = UNKNOWN
        elif one is not None and len(range(*one)) != world_size:
            members += [one] if one not in members else []
            of_facts[i] = members.index(one)
    return RowGroups(of_facts[track.buckets.facts], tuple(members))


@once
def group_numbers(run: Run) -> list[Ints]:
    """Return of each rank's rows in ``buckets`` a number for the ranks that are together in it."""
    numbers: dict[Members | None, int] = {}
    found = []
    for track in run.tracks:
        rows = groups_of(track, run.world_size)
        of = np.array([numbers.setdefault(one, len(numbers)) for one in rows.members])
        found.append(np.where(rows.of == UNKNOWN, UNKNOWN, of[rows.of]))
    return found


def ranks_within(tracks: Sequence[RankTrack], members: Members | None) -> list[int]:
    """Return the rows of those tracks whose ranks are in a group; ``None``: of all."""
    return [i for i, t in enumerate(tracks) if members is None or t.rank in range(*members)]


def units_by_number(track: RankTrack, rows: Bools) -> dict[int, Unit]:
    """Return what the numbers of a rank's buckets stand for in some rows, of a sharded model.

    A rank numbers collectives as it meets them, and keeps a number for as long as it runs.
    """
    columns, at = track.buckets, np.flatnonzero(rows & track.buckets.having("sharded"))
    numbers, first = np.unique(columns.bucket[at], return_index=True)
    facts = (track.facts[i] for i in columns.facts[at[first]].tolist())
    pairs = zip(numbers.tolist(), facts, strict=True)
    return {number: one.unit for number, one in pairs if one.unit is not None}


def unlike_numbers(tracks: Iterable[tuple[RankTrack, Bools]]) -> set[int]:
    """Return the numbers that stand for one collective on a rank, and for another on another."""
    known: dict[int, Unit] = {}
    found = set()
    for track, rows in tracks:
        for number, unit in units_by_number(track, rows).items():
            if known.setdefault(number, unit) != unit:
                found.add(number)
    return found


class Together(NamedTuple):
    """Ranks that are in the same collectives, and those of which buckets: their places."""

    ranks: tuple[int, ...]
    buckets: tuple[int, ...]


def together_in(
    rows: Sequence[tuple[RankTrack, Bools]],
    world_size: int | None,
    buckets: Ints,
    units: Collection[int],
) -> tuple[Together, ...]:
    """Return the groups of two ranks or more, of those that have a file.

    ``rows``: of each rank which of its ``buckets`` to look at; ``buckets``: ascending numbers, and
    ``units`` those that are of units.  One of which it is not known who is in it is in no group.
    """
    if not units:
        return ()
    known = np.isin(buckets, [*units])
    at: dict[Members | None, dict[int, Bools]] = {}
    for i, (track, counted) in enumerate(rows):
        groups, place = groups_of(track, world_size), track.buckets.bucket[counted]
        code = groups.of[counted]
        for number, members in enumerate(groups.members):
            others, own = place[code != number], place[code == number]
            # Who has no such collective of all ranks' keeps nobody else from one.
            is_in = np.isin(buckets, own) | (members is None)
            at.setdefault(members, {})[i] = is_in & ~np.isin(buckets, others)
    found = []
    for members, of_ranks in at.items():
        ranks = ranks_within([track for track, _ in rows], members)
        if len(ranks) > 1 and all(i in of_ranks for i in ranks):
            all_in = np.flatnonzero(known & np.logical_and.reduce([of_ranks[i] for i in ranks]))
            found += [Together(tuple(ranks), tuple(all_in.tolist()))] if len(all_in) else []
    return tuple(found)
