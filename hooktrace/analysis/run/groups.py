"""Which ranks are together in a collective: all, or of hybrid sharding a part of them.

    Run --process_groups--> of each row in each rank's ``buckets`` the group that it is in
    tracks of all ranks --ranks_within--> a group's ranks, by their rows in the run

A unit's layout says which ranks its process group has, if these are a range; of another one it is
not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...records import Members, Unit
from .columns import UNKNOWN, Bools, Ints, RankTrack
from .run import Run, once


class Groups(NamedTuple):
    """``of``: of each row in each rank's ``buckets`` a place in ``members``, or ``UNKNOWN``.

    ``members``: groups that have a part of the ranks, behind ``None`` for all of them.
    """

    of: list[Ints]
    members: list[Members | None]


@once
def process_groups(run: Run) -> Groups:
    """Return which group each collective is of.

    DDP's buckets are all ranks', whose process group nobody splits without saying so.
    """
    found = Groups([], [None])
    for track in run.tracks:
        of_facts = np.zeros(len(track.facts), np.int64)
        for i, facts in enumerate(track.facts):
            one = facts.members
            if (one is None and facts.unit is not None) or (one and track.rank not in range(*one)):
                of_facts[i] = UNKNOWN
            elif one is not None and len(range(*one)) != run.world_size:
                if one not in found.members:
                    found.members.append(one)
                of_facts[i] = found.members.index(one)
        found.of.append(of_facts[track.buckets.facts])
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
