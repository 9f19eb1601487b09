"""The columns of a run's other tables, and all tables by name; docs follow them.

``dtype`` is pandas's name; ``Table`` knows what others call it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import Any

import numpy as np

from ..run import COUNTS, STAGE_NAMES, UNKNOWN, Bools, Ints, Run, reasons, waits
from ..run.bucket_table import BUCKETS
from ..run.columns import StepColumns
from ..run.tables import (
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
    Rows,
    Values,
    always,
    distinct,
    flag,
    objects,
    sometimes,
    where,
)
from ..run.waits import Waited


class _StepRows(Rows):
    """One rank's steps."""

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
        found = self._of_any_model(lambda model: waits(self.run, model).waited[self.i])
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


def _text(value: str | None) -> Values:
    return objects([value])


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
    Column("period_ns", "Int64", "from the step's first bucket to the next step's",
           sometimes("period")),
    Column("exposed_ns", "Int64",
           "communication after the last gradient, not hidden by backward; of a sharded model "
           "what training waited for all units",
           sometimes("exposed")),
    Column("communication_ns", "Int64", "time with at least one bucket in flight",
           sometimes("communication")),
    Column("wire_in_flight_ns", "Int64", "time with at least one collective on the wire",
           sometimes("wire_in_flight")),
    GRADIENT_BYTES,
    WIRE_BYTES,
    BUS_BYTES,
    Column("bucket_count", "int64", "buckets of the step", always("bucket_count")),
    *KINDS,
    Column("sharded", "bool", "whether the model is under FSDP2: units have the rows of buckets",
           flag("sharded")),
    Column("complete", "bool", "whether all its buckets ended",
           lambda r: where(~r.columns.having("incomplete"), known=True)),
    Column("counts", "bool", "whether its times enter the report's statistics",
           lambda r: where(r.counts, known=True)),
    Column("stands_for_all", "bool",
           "whether its buckets enter them too: the file has them whatever they took, not for "
           "being slow",
           lambda r: where(r.stands_for_all, known=True)),
)  # fmt: skip

_BUCKET = Column("bucket", "int64", "index of its bucket", always("bucket"))
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
    Column("host", "string", "name of its machine", lambda r: _text(_of_run(r, "host"))),
    Column("pid", "Int64", "its process there", lambda r: _one(_of_run(r, "pid"))),
    Column("local_rank", "Int64", "which of the job's processes it is there",
           lambda r: _one(_of_run(r, "local_rank"))),
    Column("torch_version", "string", "of its torch", lambda r: _text(_of_run(r, "torch_version"))),
    Column("backend", "string", "of its process group", lambda r: _text(_of_run(r, "backend"))),
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
    Column("model", "string", "its name", lambda m: _text(m.names[0])),
    Column("hook", "string", "name of its communication hook", lambda m: _text(m.names[1])),
    Column("sharded", "bool", "whether it is under FSDP2", lambda m: _one(m.is_sharded)),
    Column("ranks", "int64", "ranks that have steps of it", lambda m: _one(m.ranks)),
    Column("rebuilds", "int64", "bucket assignments that it had",
           lambda m: _one(len(m.rebuilds))),
    Column("steps", "int64", "steps that any rank has", lambda m: _one(len(m.steps))),
    Column("counts", "int64", "those of them that enter the report's statistics on any rank",
           lambda m: _one(len(m.counting))),
    Column("waits_unknown", "string", "why nothing is known of its waits; NA where it is",
           lambda m: _text(waits(m.run, m.names[0]).why_unknown)),
)  # fmt: skip


def _of_ranks(rows: Callable[[Run, int], Rows]) -> Callable[[Run], Iterator[Any]]:
    return lambda run: (rows(run, i) for i in range(len(run.tracks)))


def _models(run: Run) -> Iterator[_Model]:
    for names in distinct(pair for track in run.tracks for pair in track.models):
        yield _Model(run, names)


TABLES: dict[str, tuple[tuple[Column, ...], Callable[[Run], Iterator[Any]]]] = {
    "steps": (STEPS, _of_ranks(_StepRows)),
    "buckets": (BUCKETS, _of_ranks(BucketRows)),
    "stages": (STAGES, _of_ranks(_StageRows)),
    "waits": (WAITS, _of_ranks(partial(_StageRows, on_wire=True))),
    "ranks": (RANKS, _of_ranks(_StepRows)),
    "models": (MODELS, _models),
}
"""Columns, and what they are made of; by the name of the attribute of ``Run``."""
