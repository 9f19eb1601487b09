"""One rank's record files as columns: an array a field, in place of an object a record.

    read.py --> RankTrack: BucketColumns, StageColumns, StepColumns, and the few records of other
                           kinds --> Run, and all that is told of it

A bucket with its stages takes about 120 bytes.  Columns are int64, or int32 where that holds all
values: add times of day only to times of day, which are int64 always.  What a file does not know
(``None``) is ``UNKNOWN``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...records import STAGES, BucketLayout, ErrorRecord
from ...records.bucket import TIMED_ONE_IN, BucketFacts
from ...records.content import RankRecords
from ...records.files import RecordFileName

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

UNKNOWN = -1

FLAGS = {
    "is_last": 1,
    "join_dummy": 2,
    "warmup": 4,
    "exception": 8,
    "device": 16,
    "untimed": 32,
    "incomplete": 64,
    "detail_left_out": 128,
    "checked": 256,
    "sharded": 512,
    "kept_by_window": 1024,
    "kept_as_first": 2048,
    "bounded": 4096,
}
"""Bits of the ``flags`` of buckets and steps. ``untimed``: a bucket on a device whose events did
not resolve. ``bounded``: one on the host that was not timed, and was done by then; a step of such.
``detail_left_out``: a step whose buckets are not there because the writer's retention left them
out; they are not missing. ``sharded``: of a step, as ``StepRecord`` says it, and of each bucket
that is a unit's collective. ``kept_...``: of a step, why its buckets are there."""

ENOUGH_BY_WINDOW = 100
"""Steps kept in windows from which on they alone stand for all."""


def packed(values: npt.NDArray[Any]) -> Ints:
    """Return whole numbers in half the memory where they fit."""
    if len(values) and (values.min() < -(2**31) or values.max() >= 2**31):
        return values.astype(np.int64)
    return values.astype(np.int32)


def bucket_keys(step: Ints, bucket: Ints) -> Ints:
    """Return a number for each bucket of each step; they ascend by step, then by bucket."""
    return step.astype(np.int64) << KEY_BITS | bucket


KEY_BITS = 20


@dataclass(frozen=True)
class _Columns:
    """What buckets and steps share; ``model``: index into ``RankTrack.models``."""

    model: Ints
    step: Ints
    rebuild: Ints
    gradient_bytes: Ints
    wire_bytes: Ints
    bus_bytes: Ints
    flags: Ints

    def __len__(self) -> int:
        return len(self.step)

    def having(self, flag: str) -> Bools:
        """Return which rows have a flag of ``FLAGS``."""
        found: Bools = (self.flags & FLAGS[flag]) != 0
        return found


@dataclass(frozen=True)
class BucketColumns(_Columns):
    """Buckets; times in ns.

    ``called``: the host's time when the hook was called, also of a device bucket; ``..._after``
    count from it.  ``facts``: index into ``RankTrack.facts``.  ``stages``: how many rows of
    ``StageColumns`` are the bucket's.  ``exposed``: of a unit's collective, as in ``BucketRecord``.

    What a line of buckets holds as it is names its column there, ``line``.
    """

    bucket: Ints = field(metadata={"line": "bucket"})
    called: Ints
    launched_after: Ints = field(metadata={"line": "launched_ns"})
    ready_after: Ints
    done_after: Ints
    exposed: Ints = field(metadata={"line": "exposed_ns"})
    facts: Ints
    stages: Ints

    @property
    def ready(self) -> Ints:
        """When the gradients were there: the host's time, or a device's placed on it."""
        return self.called + self.ready_after

    @property
    def done(self) -> Ints:
        """When the result was there, by the clock of ``ready``."""
        return self.called + self.done_after

    @property
    def first_stage(self) -> Ints:
        """Where the bucket's rows begin in ``StageColumns``."""
        counts = self.stages.astype(np.int64)
        return np.cumsum(counts) - counts


@dataclass(frozen=True)
class StageColumns:
    """Stages of all buckets, one bucket after the other.

    ``name``: index into ``STAGES``; ``start``, ``end``: ns after the bucket's ready.
    """

    name: npt.NDArray[np.int8]
    start: Ints
    end: Ints
    derived: Bools

    def __len__(self) -> int:
        return len(self.name)


@dataclass(frozen=True)
class StepColumns(_Columns):
    """Steps; times in host ns, durations in ns, as ``StepRecord`` has them."""

    first_ready: Ints
    last_ready: Ints
    done: Ints
    communication: Ints
    exposed: Ints
    wire_in_flight: Ints
    previous_period: Ints
    bucket_count: Ints

    def timed(self, rows: Bools) -> Bools:
        """Return which of these steps tell how long buckets take.

        All of them, unless some were not timed: most of those that were may be early ones, and
        those that were timed for their number stand for all.
        """
        by_number: Bools = rows & (self.step % TIMED_ONE_IN == 0)
        return by_number if (rows & self.having("bounded")).any() else rows

    def standing_for(self, rows: Bools) -> Bools:
        """Return which of these steps say what the buckets of all of them are like.

        Those that are ``timed``, if any is, unless the writer left some without buckets: it then
        kept slow ones rather than others.  Those that it kept in windows, by their number, stand
        for all; where these are few, the first ones too; and what there is, where a file says of
        none why it was kept.
        """
        timed = self.timed(rows)
        rows = timed if timed.any() else rows
        if not (rows & self.having("detail_left_out")).any():
            return rows
        found: Bools = rows & self.having("kept_by_window")
        if np.count_nonzero(found) < ENOUGH_BY_WINDOW:
            found = found | (rows & self.having("kept_as_first"))
        return found if found.any() else rows

    @property
    def period(self) -> Ints:
        """From each step's own first bucket to the next one's, which alone knows it."""
        after = self.rows_of(self.model, self.step + 1)
        return np.where(after == UNKNOWN, UNKNOWN, self.previous_period[after])

    def rows_of(self, model: Ints, step: Ints) -> Ints:
        """Return the row of each of these steps; ``UNKNOWN`` of those that are not there."""
        found = np.full(len(step), UNKNOWN)
        for one in range(int(self.model.max(initial=-1)) + 1):
            own, wanted = np.flatnonzero(self.model == one), np.flatnonzero(model == one)
            own = own[np.argsort(self.step[own], kind="stable")]
            at = np.searchsorted(self.step[own], step[wanted]).clip(max=len(own) - 1)
            if len(own):
                found[wanted] = np.where(self.step[own][at] == step[wanted], own[at], UNKNOWN)
        return found


@dataclass
class RankTrack:
    """What one rank's record files hold.

    ``models``: (model, hook), in order of appearance.  ``facts``: what a bucket is in all its
    calls, by ``BucketColumns.facts``.  ``errors``, ``exceptions``: by row in ``buckets``.
    ``unknown_bytes``: steps of which it is not known what was sent, by model and reason.
    ``records``: all else that the files hold: run, assignments, anomalies, clocks, skews, and what
    was skipped or lost.
    """

    models: list[tuple[str, str]]
    facts: list[BucketFacts]
    buckets: BucketColumns
    stages: StageColumns
    steps: StepColumns
    errors: dict[int, ErrorRecord]
    exceptions: dict[int, str]
    unknown_bytes: Counter[tuple[str, str]]
    records: RankRecords
    paths: list[str]

    @property
    def rank(self) -> int:
        """The rank; where even the first line is gone, that of the file's name."""
        if self.records.run is not None:
            return self.records.run.rank
        named = RecordFileName.of(Path(self.paths[0])) if self.paths else None
        return 0 if named is None else named.rank

    @property
    def host(self) -> str | None:
        """The machine's name; ``None`` where no file tells."""
        return None if self.records.run is None else self.records.run.host

    @cached_property
    def entries(self) -> dict[tuple[str, int, int], BucketLayout]:
        """What assignments say of a bucket, by model, rebuild and number."""
        return {
            (layout.model, layout.rebuild, bucket.bucket): bucket
            for layout in self.records.assignments
            for bucket in layout.buckets
        }

    def is_of(self, columns: BucketColumns | StepColumns, model: str) -> Bools:
        """Return which rows are a model's, whatever hook it had."""
        is_own = np.array([name == model for name, _ in self.models], np.bool_)
        return is_own[columns.model]

    def stages_of(self, rows: Ints) -> tuple[Ints, Ints]:
        """Return the rows in ``stages`` of some buckets, and the place in ``rows`` of each."""
        counts = self.buckets.stages[rows].astype(np.int64)
        of = np.repeat(np.arange(len(rows)), counts)
        before = np.cumsum(counts) - counts
        return self.buckets.first_stage[rows][of] + np.arange(len(of)) - before[of], of

    def bucket_of_stages(self) -> Ints:
        """Return the row in ``buckets`` of each row in ``stages``."""
        return np.repeat(np.arange(len(self.buckets)), self.buckets.stages)

    def time_in(self, stage: str) -> Ints:
        """Return the ns that each bucket was in a stage."""
        at = np.flatnonzero(self.stages.name == STAGES.index(stage))
        length = np.clip(self.stages.end[at] - self.stages.start[at], 0, None)
        sums = np.bincount(self.bucket_of_stages()[at], length, minlength=len(self.buckets))
        return sums.astype(np.int64)
