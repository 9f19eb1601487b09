"""Which ranks are together in which collectives of a sharded model.

tracks, the rows of them that count --together_in--> Together of each group of ranks
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from ...records import Members
from ..timeline import Bools, Ints, RankTrack, groups_of, ranks_within


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


def is_of_all(rows: Collection[tuple[RankTrack, Bools]], world_size: int | None) -> bool:
    """Return whether all ranks of the run are in all collectives."""
    return all(not groups_of(track, world_size).of[counted].any() for track, counted in rows)
