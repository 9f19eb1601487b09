"""Stretches of time of all ranks as columns, and the row in its rank's lane in which each is drawn.

    Bars, Unit of each --lanes_of--> a row each, and the rows' titles

A lane of a sharded model (FSDP2) has rows by kind: parameters that are gathered forward and
backward, gradients that are scattered, and reduced over the replicas.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt

from ...records import UNIT_KINDS, Unit
from .columns import Bools, Ints

_T = TypeVar("_T", bound=np.generic)

MAX_ROWS = 12
"""Rows of buckets in a rank's lane, at most."""
TITLES = ("all-gather fwd", "all-gather bwd", "reduce-scatter", "all-reduce", "not known")
"""Of ``UNIT_KINDS``, as the rows are titled; the last: of a file whose layout is not there."""


@dataclass(frozen=True)
class Spans:
    """Stretches of time, one rank after another, and of a rank by their ``start``.

    ``rank``: its place in the run.  ``row``: in the rank's columns.  ``start``, ``end``: ns since
    the origin.
    """

    rank: Ints
    row: Ints
    start: Ints
    end: Ints

    @classmethod
    def of(cls, ranks: Iterable[Sequence[Any]]) -> Self:
        """Return what the ranks have, each all columns behind ``rank``, in order."""
        parts = [(np.full(len(one[0]), i), *one) for i, one in enumerate(ranks)]
        return cls(*map(np.concatenate, zip(*parts, strict=True))).in_order()

    def joined(self, *others: Self) -> Self:
        """Return these and others, in order."""
        columns = ([getattr(one, f.name) for one in (self, *others)] for f in fields(self))
        return type(self)(*map(np.concatenate, columns)).in_order()

    def since(self, origin: int) -> Self:
        """Return them with times since an origin."""
        return replace(self, start=self.start - origin, end=self.end - origin)

    def in_order(self) -> Self:
        """Return them in order; one that ends before its start ends there."""
        found = replace(self, end=np.maximum(self.start, self.end))
        later = np.diff(self.rank)
        if ((later > 0) | (later == 0) & (np.diff(self.start) >= 0)).all():
            return found  # as a rule; to sort them takes longer than all the rest
        return found.at(np.lexsort((self.start, self.rank)))

    def __len__(self) -> int:
        return len(self.row)

    def at(self, places: Any) -> Self:
        """Return some of them."""
        return type(self)(*(getattr(self, one.name)[places] for one in fields(self)))

    def inside(self, t0: int, t1: int, ranks: Collection[int]) -> Ints:
        """Return the places of those of some ranks that overlap a stretch."""
        found: Ints = np.flatnonzero((self.start <= t1) & (self.end >= t0))
        return found[np.isin(self.rank[found], [*ranks])]

    def of_rank(self, i: int) -> slice:
        """Return where a rank's are."""
        return slice(*np.searchsorted(self.rank, (i, i + 1)).tolist())

    def gather(self, columns: Iterable[npt.NDArray[_T]]) -> npt.NDArray[_T]:
        """Return of each what its rank's column has in its row; ``columns``: one a rank."""
        rows = (column[self.row[self.of_rank(i)]] for i, column in enumerate(columns))
        return np.concatenate([*rows])


@dataclass(frozen=True)
class Bars(Spans):
    """Buckets of one model, or units' collectives.  ``unit``: which, ``UNKNOWN`` of a bucket."""

    step: Ints
    bucket: Ints
    flags: Ints
    unit: Ints
    lane: Ints


@dataclass(frozen=True)
class Steps(Spans):
    """Steps of one model.  ``period``: to the next one; ``counts``: which enter statistics."""

    number: Ints
    last_ready: Ints
    exposed: Ints
    period: Ints
    counts: Bools


def lanes_of(bars: Bars, units: list[Unit]) -> tuple[Ints, list[str]]:
    """Return the row of each bar in its rank's lane, and of a sharded model the rows' titles.

    Few buckets: a row for each index, so that a step is a staircase and a bucket is always at the
    same height.  Many: each takes the first row that is free, and the rows begin anew with each
    step.  Of units, collectives of one kind that are under way at once have a row each; kinds that
    no rank has take no room.
    """
    if not units:
        few = bars.bucket.max(initial=0) < MAX_ROWS
        own = (bars.start, bars.end, bars.rank, bars.step)
        return (bars.bucket.astype(np.int64) if few else free_rows(*own)), []
    kind = np.array([*(UNIT_KINDS.index(one.kind) for one in units), len(UNIT_KINDS)])[bars.unit]
    row = free_rows(bars.start, bars.end, kind, bars.rank, bars.step)
    heights = [int(row[kind == k].max(initial=-1)) + 1 for k in range(len(TITLES))]
    titles = [
        "" if i else title
        for title, height in zip(TITLES, heights, strict=True)
        for i in range(height)
    ]
    return np.cumsum([0, *heights])[kind] + row, titles


def free_rows(start: Ints, end: Ints, *groups: Ints) -> Ints:
    """Return for each bar the first row, below ``MAX_ROWS``, that is free in its group.

    A group has one value of each of ``groups``; its bars come by their start.  Where more than
    ``MAX_ROWS`` of them are under way at once, some share a row.
    """
    rows = np.zeros(len(start), np.int64)
    order = np.lexsort(groups)
    differs = np.any([np.diff(one[order]) != 0 for one in groups], axis=0)
    firsts = np.flatnonzero(np.append(len(start) > 0, differs))
    sizes = np.diff(np.append(firsts, len(order)))
    busy_to = np.full((len(firsts), MAX_ROWS), np.iinfo(np.int64).min)
    # The k-th bar of all groups at once: as many turns as a group has bars.
    for k in range(int(sizes.max(initial=0))):
        own = np.flatnonzero(sizes > k)
        at = order[firsts[own] + k]
        free = busy_to[own] <= start[at, None]
        row = free.argmax(axis=1)
        # Where none is free, the one that is free the soonest.
        if len(full := np.flatnonzero(~free.any(axis=1))):
            row[full] = busy_to[own[full]].argmin(axis=1)
        busy_to[own, row] = np.maximum(busy_to[own, row], end[at])
        rows[at] = row
    return rows
