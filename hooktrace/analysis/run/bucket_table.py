"""The columns of the bucket table: the one list that data frames and report show.

Of a column with ``shown`` data frames hand out the values, and the report has what ``summed`` makes
of a bucket's values on all ranks and steps.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .columns import UNKNOWN
from .dense import Floats, known, known_middle, mean, spread
from .tables import (
    BUS_BYTES,
    GRADIENT_BYTES,
    KINDS,
    TRANSFER,
    UNSURE,
    WAIT,
    WALL,
    WHOSE,
    WIRE_BYTES,
    BucketRows,
    Column,
    Shown,
    Values,
    always,
    flag,
    known_of,
    objects,
    sometimes,
    where,
)


def _most_bytes(values: Floats) -> int:
    return int(np.fmax.reduce(values, initial=0.0))


def _sized(rows: BucketRows) -> Values:
    """Return the bytes of gradients, where a layout or the line itself tells."""
    told = np.array([fact.dtype != "unknown" for fact in rows.track.facts], np.bool_)
    return where(rows.columns.gradient_bytes.astype(np.int64), told[rows.columns.facts])


def _of_unit(field: str) -> Callable[[BucketRows], Values]:
    return lambda rows: rows.fact(lambda fact: getattr(fact.unit, field, None))


def _turns(rows: BucketRows) -> Values:
    turns = [UNKNOWN if fact.unit is None else fact.unit.repeat for fact in rows.track.facts]
    return known_of(np.array(turns, np.int64)[rows.columns.facts])


def _of_errors(field: str) -> Callable[[BucketRows], Values]:
    def column(rows: BucketRows) -> Values:
        found = np.full(len(rows.columns), np.nan)
        for row, error in rows.track.errors.items():
            value = getattr(error, field)
            found[row] = np.nan if value is None else value
        return where(found, known=True)

    return column


def _exceptions(rows: BucketRows) -> Values:
    return objects(map(rows.track.exceptions.get, range(len(rows.columns))))


BUCKETS = (
    *WHOSE,
    Column("bucket", "int64", "index in its rebuild, in the order of the gradients",
           always("bucket")),
    Column("is_last", "bool", "whether its gradients come last", flag("is_last")),
    Column("unit", "string", "the unit of a sharded model; NA for a bucket",
           _of_unit("name")),
    Column("collective", "string", "the unit's collective: all_gather, reduce_scatter, ...",
           _of_unit("collective")),
    Column("phase", "string", "forward or backward; units only", _of_unit("phase")),
    Column("repeat", "Int64", "position among such calls of the step, from 0; units only", _turns),
    Column("exposed_ns", "Int64", "how long training waited for the unit's collective",
           sometimes("exposed"),
           Shown("exposed", spread, "exposed", "exposed: what training waits for it")),
    Column("dtype", "category", "torch's name of the gradients' type",
           lambda r: r.fact(lambda fact: fact.dtype)),
    Column("time", WALL, "wall-clock time of called_ns", BucketRows.wall),
    Column("called_ns", "Int64", "when DDP called the hook, on the host",
           lambda r: r.common(r.columns.called)),
    Column("launched_ns", "Int64", "when the hook returned its future, on the host",
           lambda r: r.common(r.columns.called + r.columns.launched_after)),
    Column("ready_ns", "Int64",
           "when the gradients were there; on a device, by its own clock from where the host "
           "called the step's first hook",
           lambda r: r.common(r.columns.ready, r.timed)),
    Column("done_ns", "Int64", "when the result was there, by the clock of ready_ns",
           lambda r: r.common(r.columns.done, r.timed)),
    UNSURE,
    Column("duration_ns", "Int64", "done_ns less ready_ns",
           lambda r: where(r.columns.done - r.columns.ready, r.timed),
           Shown("duration", spread, "time", "time: from ready to done")),
    # Whoever is last waits for nobody: a median may be 0 whatever the others wait.
    WAIT._replace(shown=Shown("wait_ns", lambda values: known(mean(values)), "wait")),
    TRANSFER._replace(shown=Shown("transfer_ns", known_middle)),
    GRADIENT_BYTES._replace(of=_sized, shown=Shown("gradient_bytes", _most_bytes, "gradients")),
    WIRE_BYTES._replace(
        shown=Shown("wire_bytes", known_middle, "sent", rank=3, with_checked=True)
    ),
    BUS_BYTES,
    Column("error_relative_l2", "float64", "error of the result, |x - r| / |r|, where sampled",
           _of_errors("relative_l2"),
           Shown("error", None, "error", "error: relative L2")),
    Column("error_cosine", "float64", "cosine of the result and the lossless average",
           _of_errors("cosine")),
    Column("exception", "string", "what the hook raised; NA where it did not", _exceptions),
    *KINDS,
)  # fmt: skip

SHOWN = [(column, column.shown) for column in BUCKETS if column.shown is not None]
"""Those that the report shows too, and how."""
