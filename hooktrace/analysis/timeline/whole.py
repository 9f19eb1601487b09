"""Which collectives all ranks of a run are in; of hybrid sharding each has a part of them only.

RankTrack, world size --is_whole--> of each row in ``buckets``, whether all ranks are in it

Files do not say which ranks a group has.  What nccl-tests multiplies a payload by does say how many
they are: of no two sizes of groups is it the same, for a kind that FSDP uses.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ...records import Unit
from ...records.intervals import bus_bytes
from .columns import Bools, RankTrack

_KINDS = ("all_gather", "reduce_scatter", "all_reduce")
_CLOSE = 1e-3
_LARGE = 1 << 20
"""Bytes: of a payload this large a factor has more digits than ``_CLOSE`` needs."""


def is_whole(track: RankTrack, world_size: int | None) -> Bools:
    """Return of each row in ``buckets`` whether all ranks are in its collectives.

    True of DDP's buckets, whose process group nobody splits without saying so, and where the size
    of the world or what was sent is not known.
    """
    columns = track.buckets
    is_unit = np.array([f.unit is not None for f in track.facts], bool)[columns.facts]
    if world_size is None or world_size < 2 or not is_unit.any():
        return np.ones(len(columns), bool)
    sent, on_bus = columns.wire_bytes.astype(np.float64), columns.bus_bytes.astype(np.float64)
    factors = [(bus_bytes(kind, _LARGE, world_size) or 0.0) / _LARGE for kind in _KINDS]
    # A column holds whole bytes, so that of a small payload the factor may be off by one of them.
    fits = [np.abs(on_bus - sent * one) <= 1 + _CLOSE * sent * one for one in factors]
    known = (sent > 0) & (on_bus >= 0)
    found: Bools = ~is_unit | ~known | np.any(fits, axis=0)
    return found


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
