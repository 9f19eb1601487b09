"""The tables of a run, and their columns, each declared once with how its values come about.

``TABLES`` names them all; data frames hand them out, and the report shows those columns of
``BUCKETS`` that have ``shown``.  ``dtype`` is pandas's name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import Any

import numpy as np

from ...records import STAGES as STAGE_NAMES  # STAGES is a table here
from .columns import UNKNOWN, Bools, Floats, Ints, StepColumns
from .counts import COUNTS, reasons
from .dense import known, known_middle, mean, spread
from .rows import BucketRows, Column, Rows, Shown, Values, known_of, objects, where
from .run import Run
from .waits import Waited, waits


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
    Column("step", "int64", "number of the step"),
    Column("rebuild", "int64", "DDP's bucket assignment; 0 is the one before the first step's end"),
)  # fmt: skip
KINDS = (
    Column("warmup", "bool", "of a first step, before buckets are as they stay"),
    Column("join_dummy", "bool", "for a rank that has run out of data (join)"),
    Column("checked", "bool", "hooktrace looked at it, so its times are not training's own"),
)  # fmt: skip
GRADIENT_BYTES = Column(
    "gradient_bytes",
    "Int64",
    "bytes of gradients; of a unit what the rank gave to its collective, of a gather parameters",
)
WIRE_BYTES = Column("wire_bytes", "Int64", "bytes that the rank sent")
BUS_BYTES = Column("bus_bytes", "Int64", "those bytes times the bus factor of nccl-tests")
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


BUCKETS = (
    *WHOSE,
    Column("bucket", "int64", "index in its rebuild, in the order of the gradients"),
    Column("is_last", "bool", "whether its gradients come last"),
    Column("unit", "string", "the unit of a sharded model; NA for a bucket",
           _of_unit("name")),
    Column("collective", "string", "the unit's collective: all_gather, reduce_scatter, ...",
           _of_unit("collective")),
    Column("phase", "string", "forward or backward; units only", _of_unit("phase")),
    Column("repeat", "Int64", "position among such calls of the step, from 0; units only", _turns),
    Column("exposed_ns", "Int64", "how long training waited for the unit's collective",
           shown=Shown("exposed", spread, "exposed", "exposed: what training waits for it")),
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
           lambda r: r.common(r.columns.ready, r.placed)),
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
           Shown("error", None, "error", "error: relative L2 (vNMSE is its square)")),
    Column("error_cosine", "float64", "cosine of the result and the lossless average",
           _of_errors("cosine")),
    Column("exception", "string", "what the hook raised; NA where it did not",
           lambda r: objects(map(r.track.exceptions.get, range(len(r.columns))))),
    *KINDS,
)  # fmt: skip

SHOWN = [(column, column.shown) for column in BUCKETS if column.shown is not None]
"""Those that the report shows too, and how."""


class _StepRows(Rows):
    columns: StepColumns

    def __init__(self, run: Run, i: int) -> None:
        steps = run.tracks[i].steps
        super().__init__(run, i, steps, steps.first_ready)

    @cached_property
    def counts(self) -> Bools:
        found: Bools = reasons(self.run)[self.i] == COUNTS
        return found

    @property
    def stands_for_all(self) -> Bools:
        found = np.zeros(len(self.columns), np.bool_)
        for number in range(len(self.track.models)):
            found |= self.columns.standing_for(self.counts & (self.columns.model == number))
        return found


class _StageRows(BucketRows):
    """One rank's stages, or those on the wire; ``of``: the row of each one's bucket."""

    def __init__(self, run: Run, i: int, *, on_wire: bool = False) -> None:
        super().__init__(run, i)
        names = self.track.stages.name
        self.at = np.flatnonzero(names == STAGE_NAMES.index("wire") if on_wire else names >= 0)
        self.of = self.track.bucket_of_stages()[self.at]
        self.names = names[self.at].astype(np.int64)
        self.timed = self.host_known = self.timed[self.of]
        self.host = self.end_of("start")

    def column(self, name: str) -> Ints:
        return super().column(name)[self.of]

    def end_of(self, name: str) -> Ints:
        """Return when stages began (``start``) or ended (``end``), by the rank's clock."""
        found: Ints = getattr(self.track.stages, name)[self.at]
        return self.columns.ready[self.of] + found

    @property
    def wire_ns(self) -> Ints:
        stages = self.track.stages
        return stages.end[self.at].astype(np.int64) - stages.start[self.at]

    @cached_property
    def waited(self) -> Waited:
        found = self.each_waited(lambda model: waits(self.run, model).waited[self.i])
        return Waited(*(values[self.at] for values in found))


class _Model:
    """One model with one hook: what all ranks have of it."""

    def __init__(self, run: Run, names: tuple[str, str]) -> None:
        self.run, self.names = run, names
        self.steps: set[int] = set()
        self.counting: set[int] = set()
        self.rebuilds: set[int] = set()
        self.ranks, self.is_sharded = 0, False
        for track, reason in zip(run.tracks, reasons(run), strict=True):
            if names not in track.models:
                continue
            mine = track.steps.model == track.models.index(names)
            self.steps |= set(track.steps.step[mine].tolist())
            self.counting |= set(track.steps.step[mine & (reason == COUNTS)].tolist())
            self.rebuilds |= set(track.steps.rebuild[mine].tolist())
            self.ranks += bool(mine.any())
            self.is_sharded |= bool(track.steps.having("sharded")[mine].any())


def _one(value: Any) -> Values:
    """Return the only row of a rank or model."""
    return np.ma.MaskedArray([0 if value is None else value], [value is None])


def _of_run(rows: Rows, field: str) -> Any:
    """Return what a rank's file says of its process; ``None`` where it does not."""
    return getattr(rows.track.records.run, field, None)


def _last(rows: _StageRows) -> Values:
    ranks, last = np.array([track.rank for track in rows.run.tracks]), rows.waited.last
    return where(ranks[last], last != UNKNOWN)


STEPS = (
    *WHOSE,
    Column("time", WALL, "wall-clock time of first_ready_ns", _StepRows.wall),
    Column("first_ready_ns", "Int64", "when the first bucket's gradients were there",
           lambda r: r.common(r.columns.first_ready)),
    Column("last_ready_ns", "Int64",
           "when the last bucket's were; on a device: its hook was called",
           lambda r: r.common(r.columns.last_ready)),
    Column("done_ns", "Int64", "when all results were there; on a device: had been enqueued",
           lambda r: r.common(r.columns.done)),
    UNSURE,
    Column("period_ns", "Int64", "from the step's first bucket to the next step's"),
    Column("exposed_ns", "Int64",
           "communication after the last gradient, not hidden by backward; of a sharded model "
           "what training waited for all units"),
    Column("communication_ns", "Int64", "time with at least one bucket in flight"),
    Column("wire_in_flight_ns", "Int64", "time with at least one collective on the wire"),
    GRADIENT_BYTES,
    WIRE_BYTES,
    BUS_BYTES,
    Column("bucket_count", "int64", "buckets of the step"),
    *KINDS,
    Column("sharded", "bool", "whether the model is under FSDP2: units have the rows of buckets"),
    Column("complete", "bool", "whether all its buckets ended",
           lambda r: where(~r.columns.having("incomplete"), known=True)),
    Column("counts", "bool", "whether its times enter the report's statistics",
           lambda r: where(r.counts, known=True)),
    Column("stands_for_all", "bool",
           "whether its buckets enter them too: the file has them, kept and timed for the step's "
           "number, not for what they took",
           lambda r: where(r.stands_for_all, known=True)),
)  # fmt: skip

_BUCKET = Column("bucket", "int64", "index of its bucket")
_SPAN = (
    Column("time", WALL, "wall-clock time of start_ns", Rows.wall),
    Column("start_ns", "Int64", "when the rank began it",
           lambda r: r.common(r.end_of("start"), r.timed)),
    Column("end_ns", "Int64", "when it ended", lambda r: r.common(r.end_of("end"), r.timed)),
    UNSURE,
    Column("duration_ns", "Int64", "end_ns less start_ns", lambda r: where(r.wire_ns, r.timed)),
)  # fmt: skip

STAGES = (
    *WHOSE,
    _BUCKET,
    Column("stage", "category", "serialization_wait, compress, queue, wire, decompress, ...",
           lambda r: objects(STAGE_NAMES)[r.names]),
    *_SPAN,
    Column("derived", "bool", "worked out by the model of the backend's queue, not stamped",
           lambda r: where(r.track.stages.derived[r.at], known=True)),
)  # fmt: skip

WAITS = (
    *WHOSE,
    _BUCKET,
    *_SPAN,
    WAIT,
    TRANSFER,
    Column("waited_for", "Int64", "the last rank, where the clocks tell", _last),
)

RANKS = (
    Column("rank", "int64", "rank that has a file", lambda r: _one(r.track.rank)),
    Column("host", "string", "name of its machine", lambda r: objects([_of_run(r, "host")])),
    Column("pid", "Int64", "its process there", lambda r: _one(_of_run(r, "pid"))),
    Column("local_rank", "Int64", "which of the job's processes it is there",
           lambda r: _one(_of_run(r, "local_rank"))),
    Column("torch_version", "string", "of its torch",
           lambda r: objects([_of_run(r, "torch_version")])),
    Column("backend", "string", "of its process group", lambda r: objects([_of_run(r, "backend")])),
    Column("clock_known", "bool", "whether its clock was measured against rank 0's",
           lambda r: _one(r.run.clocks[r.i].is_known)),
    Column("steps", "int64", "steps that its files have, of all models",
           lambda r: _one(len(r.columns))),
    Column("counts", "int64", "those of them whose times enter the report's statistics",
           lambda r: _one(int(np.count_nonzero(r.counts)))),
    Column("closed", "bool", "whether its file was ended in order",
           lambda r: _one(r.track.records.closed)),
    Column("unread", "int64", "lines of its files that could not be read",
           lambda r: _one(len(r.track.records.skipped) + r.track.records.unnamed)),
)  # fmt: skip

MODELS = (
    Column("model", "string", "its name", lambda m: objects([m.names[0]])),
    Column("hook", "string", "name of its communication hook", lambda m: objects([m.names[1]])),
    Column("sharded", "bool", "whether it is under FSDP2", lambda m: _one(m.is_sharded)),
    Column("ranks", "int64", "ranks that have steps of it", lambda m: _one(m.ranks)),
    Column("rebuilds", "int64", "bucket assignments that it had",
           lambda m: _one(len(m.rebuilds))),
    Column("steps", "int64", "steps that any rank has", lambda m: _one(len(m.steps))),
    Column("counts", "int64", "those of them that enter the report's statistics on any rank",
           lambda m: _one(len(m.counting))),
    Column("waits_unknown", "string", "why nothing is known of its waits; NA where it is",
           lambda m: objects([waits(m.run, m.names[0]).why_unknown])),
)  # fmt: skip


def _of_ranks(rows: Callable[[Run, int], Rows]) -> Callable[[Run], Iterator[Any]]:
    return lambda run: (rows(run, i) for i in range(len(run.tracks)))


def _models(run: Run) -> Iterator[_Model]:
    names = dict.fromkeys(pair for track in run.tracks for pair in track.models)
    return (_Model(run, pair) for pair in names)


TABLES: dict[str, tuple[tuple[Column, ...], Callable[[Run], Iterator[Any]]]] = {
    "steps": (STEPS, _of_ranks(_StepRows)),
    "buckets": (BUCKETS, _of_ranks(BucketRows)),
    "stages": (STAGES, _of_ranks(_StageRows)),
    "waits": (WAITS, _of_ranks(partial(_StageRows, on_wire=True))),
    "ranks": (RANKS, _of_ranks(_StepRows)),
    "models": (MODELS, _models),
}
"""Columns, and what they are made of; by the name of the attribute of ``Run``."""
