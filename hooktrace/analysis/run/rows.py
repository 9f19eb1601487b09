"""One rank's rows of a table, and what makes columns of them: numpy, masked where unknown.

    Run --Rows of each rank--> Column.of --> masked arrays --rank after rank--> all of ``made``

Times are ns of rank 0's host clock.  A rank whose clock nobody measured stands by its wall clock,
and its ``clock_uncertainty_ns`` is not known; where rank 0's file is missing too, its times are not
known.  Wall-clock times are rank 0's machine's, or where its file is missing, the rank's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .columns import UNKNOWN, Bools, BucketColumns, Ints, StepColumns
from .run import Run
from .waits import Waited, waits

Values = np.ma.MaskedArray[Any, Any]
"""One column; names and texts are objects."""


def where(values: npt.NDArray[Any], known: Bools | bool) -> Values:
    """Return values that are known in some rows."""
    return np.ma.MaskedArray(values, np.logical_not(known))


def known_of(values: Ints) -> Values:
    """Return numbers that are not known where they are ``UNKNOWN``."""
    return where(values.astype(np.int64), values != UNKNOWN)


def objects(values: Iterable[Any]) -> Values:
    """Return texts, and what else is no number, which are not known where they are ``None``."""
    found = [*values]
    content = np.empty(len(found), object)
    content[:] = found
    return np.ma.MaskedArray(content, np.array([one is None for one in found], np.bool_))


class Shown(NamedTuple):
    """How the report shows a column of the bucket table, which data frames have anyway.

    ``fact``: the field of the report's ``BucketFacts``, of what ``summed`` makes of a bucket's
    values on all ranks and steps, flat, NaN where unknown.  ``with_checked``: in checked steps too.
    ``summed`` is ``None`` where the report makes the fact in another way.  ``heading``: what it is
    called; without one only the report's JSON has it.  ``about``: what is to know of it below the
    report's table; ``rank``: in which order that leaves columns out where there is no room, the
    highest first.
    """

    fact: str
    summed: Callable[[npt.NDArray[np.float64]], Any] | None
    heading: str = ""
    about: str = ""
    rank: int = 0
    with_checked: bool = False


class Column(NamedTuple):
    """A column: its name, its pandas dtype, what it holds, and what makes it of a rank's ``Rows``.

    Without ``of`` it is the field, or for ``bool`` the flag, of its name without ``_ns``.
    ``Int64`` has NA where a value is not known and ``float64`` NaN; ``int64`` and ``bool`` are
    always known.  Names say the unit.
    """

    name: str
    dtype: str
    what: str
    of: Callable[[Any], Values] | None = None
    shown: Shown | None = None

    def values(self, rows: Any) -> Values:
        """Return the column of a rank's rows."""
        if self.of is not None:
            return self.of(rows)
        if self.dtype == "bool":
            return where(rows.columns.having(self.name), known=True)
        numbers = rows.column(self.name.removesuffix("_ns")).astype(np.int64)
        return where(numbers, known=(numbers != UNKNOWN) | (self.dtype == "int64"))


class Rows:
    """One rank's rows of a table; ``i``: the rank's place in the run.

    ``columns``: what the rows are of.  ``host``: the host's time by which a row lies in the run,
    where ``host_known``.
    """

    columns: BucketColumns | StepColumns

    def __init__(self, run: Run, i: int, columns: BucketColumns | StepColumns, host: Ints) -> None:
        self.run, self.i, self.columns, self.host = run, i, columns, host
        self.track, self.clock = run.ranks[i]
        self.host_known: Bools | bool = True

    def column(self, name: str) -> Ints:
        """Return a field of ``columns``, a value a row."""
        found: Ints = getattr(self.columns, name)
        return found

    def common(self, host: Ints, known: Bools | bool = True) -> Values:
        """Return times of day by rank 0's clock."""
        return where(self.clock.common(host), np.logical_and(known, self.clock.is_placed))

    def wall(self) -> Values:
        """Return the wall-clock time of ``host``, ns since the epoch."""
        at = self.clock.wall(self.host)
        return where(self.host, known=False) if at is None else where(at, self.host_known)

    def uncertainty(self) -> Values:
        """Return by how much ``host`` may be off beside another rank's."""
        unsure = self.clock.uncertainty(self.host)
        return where(unsure, np.logical_and(unsure != UNKNOWN, self.host_known))

    def each_waited(self, of_model: Callable[[str], Waited]) -> Waited:
        """Return the waits of all models; each row is of one of them, and unknown of the others."""
        found = [of_model(model) for model in self.run.model_names]
        return Waited(*np.max(found, axis=0)) if found else Waited(self.host, self.host)


class BucketRows(Rows):
    """One rank's buckets; of ``placed`` it is known when they were ready, of ``timed`` done too."""

    columns: BucketColumns

    def __init__(self, run: Run, i: int) -> None:
        columns = run.tracks[i].buckets
        super().__init__(run, i, columns, columns.called)
        self.placed: Bools = ~columns.having("untimed")
        self.timed: Bools = self.placed & ~columns.having("bounded")

    def fact(self, of: Callable[[Any], Any]) -> Values:
        """Return something of each bucket's facts."""
        return objects(map(of, self.track.facts))[self.column("facts")]

    @cached_property
    def waited(self) -> Waited:
        """What the buckets' wire stages waited."""
        return self.each_waited(lambda model: waits(self.run, model).by_bucket(self.i))

    @property
    def wire_ns(self) -> Ints:
        """How long the buckets were on the wire."""
        return self.track.time_in("wire")


def made(of: Iterable[Any], columns: Sequence[Column]) -> dict[str, Values]:
    """Return each column by its name, of some ranks' rows one after another."""
    # Rank by rank, so that what a rank's rows keep for several columns goes before the next one's.
    parts = [[column.values(rows) for column in columns] for rows in of]
    return {c.name: _joined([one[i] for one in parts], c) for i, c in enumerate(columns)}


def _joined(parts: Sequence[Values], column: Column) -> Values:
    if not parts:
        kind = column.dtype if column.dtype in ("int64", "bool") else object
        return where(np.zeros(0, kind), known=True)
    found: Values = np.ma.concatenate(parts)
    return found
