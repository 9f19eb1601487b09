"""A run as tables of numpy: columns, each declared once with how its values come about.

    Run --Rows of each rank--> Column.of --> masked arrays --rank after rank--> all of ``made``

A value that is not known is masked.  Times are ns of rank 0's host clock.  A rank whose clock
nobody measured stands by its wall clock, and its ``clock_uncertainty_ns`` is not known; where rank
0's file is missing too, its times are not known.  Wall-clock times are rank 0's machine's, or where
its file is missing, the rank's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from ...records import RunInfo
from .columns import STAGE_NAMES, UNKNOWN, Bools, BucketColumns, Ints, StepColumns
from .run import Run, once
from .waits import Waited, waits

_T = TypeVar("_T")

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
    """A column: its name, its pandas dtype, what it holds, and its values in a rank's ``Rows``.

    ``Int64`` has NA where a value is not known and ``float64`` NaN; ``int64`` and ``bool`` are
    always known.  Names say the unit.
    """

    name: str
    dtype: str
    what: str
    of: Callable[[Any], Values]
    shown: Shown | None = None


_NOTHING: Ints = np.zeros(0, np.int64)


class Rows:
    """One rank's rows of a table; ``i``: the rank's place in the run.

    ``columns``: what the rows are of.  ``host``: the host's time by which a row lies in the run,
    where ``host_known``.
    """

    columns: BucketColumns | StepColumns

    def __init__(self, run: Run, i: int, columns: BucketColumns | StepColumns, host: Ints) -> None:
        self.run, self.i, self.track, self._clock = run, i, run.tracks[i], run.clocks[i]
        self.columns, self.host = columns, host
        self.host_known: Bools | bool = True
        own, self._rank_0 = self.track.records.run, _rank_0(run)
        self._is_placed = self._clock.is_known or None not in (self._rank_0, own)
        self._anchor = self._rank_0 or own

    def column(self, name: str) -> Ints:
        """Return a field of ``columns``, a value a row."""
        found: Ints = getattr(self.columns, name)
        return found

    def common(self, host: Ints, known: Bools | bool = True) -> Values:
        """Return times of day by rank 0's clock."""
        return where(self._clock.common(host), np.logical_and(known, self._is_placed))

    def wall(self) -> Values:
        """Return the wall-clock time of ``host``, ns since the epoch."""
        at = self.host if self._rank_0 is None else self._clock.common(self.host)
        if self._anchor is None or not (self._is_placed or self._rank_0 is None):
            return where(at, known=False)
        to_wall = self._anchor.wall_anchor_ns - self._anchor.host_anchor_ns
        return where(at + to_wall, self.host_known)

    def uncertainty(self) -> Values:
        """Return by how much ``host`` may be off beside another rank's."""
        unsure = self._clock.uncertainty(self.host)
        return where(unsure, np.logical_and(unsure != UNKNOWN, self.host_known))

    def _of_any_model(self, of_model: Callable[[str], Waited]) -> Waited:
        """Return the waits of all models; each row is of one of them, and unknown of the others."""
        found = [of_model(model) for model in self.run.model_names]
        return Waited(*np.max(found, axis=0)) if found else Waited(_NOTHING, _NOTHING)


class BucketRows(Rows):
    """One rank's buckets; ``timed``: of which it is known when they were ready and done."""

    columns: BucketColumns

    def __init__(self, run: Run, i: int) -> None:
        columns = run.tracks[i].buckets
        super().__init__(run, i, columns, columns.called)
        self.timed: Bools = ~columns.having("untimed")

    def fact(self, of: Callable[[Any], Any]) -> Values:
        """Return something of each bucket's facts."""
        return objects(map(of, self.track.facts))[self.column("facts")]

    @cached_property
    def waited(self) -> Waited:
        """What the buckets' wire stages waited."""
        return self._of_any_model(lambda model: waits(self.run, model).by_bucket(self.i))

    @property
    def wire_ns(self) -> Ints:
        """How long the buckets were on the wire."""
        return self.track.time_in_stages()[:, STAGE_NAMES.index("wire")]


@once
def _rank_0(run: Run) -> RunInfo | None:
    runs = (track.records.run for track in run.tracks)
    return next((one for one in runs if one and one.rank == 0), None)


def distinct(values: Iterable[_T]) -> tuple[_T, ...]:
    """Return values in the order in which they first come, each once."""
    return tuple(dict.fromkeys(values))


def made(of: Iterable[Any], columns: Sequence[Column]) -> dict[str, Values]:
    """Return each column by its name, of some ranks' rows one after another."""
    # Rank by rank, so that what a rank's rows keep for several columns goes before the next one's.
    parts = [[column.of(rows) for column in columns] for rows in of]
    return {c.name: _joined([one[i] for one in parts], c) for i, c in enumerate(columns)}


def _joined(parts: Sequence[Values], column: Column) -> Values:
    if not parts:
        kind = column.dtype if column.dtype in ("int64", "bool") else object
        return where(np.zeros(0, kind), known=True)
    found: Values = np.ma.concatenate(parts)
    return found


def always(name: str) -> Callable[[Rows], Values]:
    """Return what makes a column of a field that is known in each row."""
    return lambda rows: where(rows.column(name).astype(np.int64), known=True)


def sometimes(name: str) -> Callable[[Rows], Values]:
    """Return what makes a column of a field that may be ``UNKNOWN``."""
    return lambda rows: known_of(rows.column(name))


def flag(name: str) -> Callable[[Rows], Values]:
    """Return what makes a column of one of ``FLAGS``."""
    return lambda rows: where(rows.columns.having(name), known=True)


def _transfer(rows: Any) -> Values:
    waited = rows.waited.ns
    return known_of(np.where(waited == UNKNOWN, UNKNOWN, rows.wire_ns - waited))


def _names(rows: Rows, place: int) -> Values:
    return objects(one[place] for one in rows.track.models)[rows.column("model")]


WALL = "datetime64[ns, UTC]"

WHOSE = (
    Column("model", "category", "name of the model",
           lambda r: _names(r, 0)),
    Column("hook", "category", "name of its communication hook",
           lambda r: _names(r, 1)),
    Column("rank", "int64", "rank that recorded the row",
           lambda r: where(np.full(len(r.column("model")), r.track.rank), known=True)),
    Column("step", "int64", "number of the step", always("step")),
    Column("rebuild", "int64", "DDP's bucket assignment; 0 is the one before the first step's end",
           always("rebuild")),
)  # fmt: skip
KINDS = (
    Column("warmup", "bool", "of a first step, before buckets are as they stay", flag("warmup")),
    Column("join_dummy", "bool", "for a rank that has run out of data (join)", flag("join_dummy")),
    Column("checked", "bool", "hooktrace looked at it, so its times are not training's own",
           flag("checked")),
)  # fmt: skip
GRADIENT_BYTES = Column(
    "gradient_bytes",
    "Int64",
    "bytes of gradients; of a unit what the rank gave to its collective, of a gather parameters",
    sometimes("gradient_bytes"),
)
WIRE_BYTES = Column("wire_bytes", "Int64", "bytes that the rank sent", sometimes("wire_bytes"))
BUS_BYTES = Column(
    "bus_bytes", "Int64", "those bytes times the bus factor of nccl-tests", sometimes("bus_bytes")
)
UNSURE = Column(
    "clock_uncertainty_ns",
    "Int64",
    "by how much the host's times may be off beside another rank's",
    Rows.uncertainty,
)
WAIT = Column(
    "wait_ns",
    "Int64",
    "part of the wire time until the last rank had begun",
    lambda r: known_of(r.waited.ns),
)
TRANSFER = Column("transfer_ns", "Int64", "rest of the wire time", _transfer)
