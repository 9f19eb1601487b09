"""One rank's record files as columns: an array a field, in place of an object a record.

    read_columns.py --> RankTrack: BucketColumns, StageColumns, StepColumns, and the few records
                                   of other kinds --> merge.py, report, Perfetto file, tab

A bucket with its stages takes about 120 bytes.  Columns are int64, or int32 where that holds all
values: add times of day only to times of day, which are int64 always.  What a file does not know
(``None``) is ``UNKNOWN``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ...records import STAGES, ErrorRecord
from ...records.content import RankRecords
from ...records.lines import BucketFacts

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

UNKNOWN = -1

STAGE_NAMES = STAGES
"""A stage's ``name`` is an index into these."""

BUCKET_FLAGS = {"is_last": 1, "shadow": 2, "warmup": 4, "exception": 8, "device": 16, "untimed": 32}
"""Bits of a bucket's ``flags``.  ``untimed``: on a device whose events did not resolve."""

STEP_FLAGS = {"shadow": 2, "warmup": 4, "incomplete": 64, "detail_left_out": 128}
"""Bits of a step's ``flags``.  ``detail_left_out``: its buckets are not there because the writer's
retention left them out; they are not missing."""


def packed(values: npt.NDArray[Any]) -> Ints:
    """Return whole numbers in half the memory where they fit."""
    if len(values) and (values.min() < -(2**31) or values.max() >= 2**31):
        return values.astype(np.int64)
    return values.astype(np.int32)


@dataclass(frozen=True, slots=True)
class BucketColumns:
    """Buckets; times in ns.

    ``called``: the host's time when the hook was called, also of a device bucket; ``..._after``
    count from it.  ``facts``: index into ``RankTrack.facts``; ``model`` and ``gradient_bytes`` are
    what stands there, the model as an index into ``RankTrack.models``.  ``stages``: how many rows
    of ``StageColumns`` are the bucket's.
    """

    step: Ints
    bucket: Ints
    generation: Ints
    called: Ints
    launched_after: Ints
    ready_after: Ints
    done_after: Ints
    wire_bytes: Ints
    bus_bytes: Ints
    flags: Ints
    facts: Ints
    stages: Ints
    models_of_facts: Ints
    bytes_of_facts: Ints

    def __len__(self) -> int:
        return len(self.called)

    @property
    def model(self) -> Ints:
        """Index into ``RankTrack.models``."""
        return self.models_of_facts[self.facts]

    @property
    def gradient_bytes(self) -> Ints:
        """Bytes of the bucket's gradients."""
        return self.bytes_of_facts[self.facts]

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
        found: Ints = np.cumsum(counts) - counts
        return found

    def having(self, flag: str) -> Bools:
        """Return which buckets have a flag of ``BUCKET_FLAGS``."""
        found: Bools = (self.flags & BUCKET_FLAGS[flag]) != 0
        return found


@dataclass(frozen=True, slots=True)
class StageColumns:
    """Stages of all buckets, one bucket after the other; ``start``, ``end``: ns after its ready."""

    name: npt.NDArray[np.int8]
    start: Ints
    end: Ints
    derived: Bools

    def __len__(self) -> int:
        return len(self.name)


@dataclass(frozen=True, slots=True)
class StepColumns:
    """Steps; times in host ns, durations in ns, as ``StepRecord`` has them."""

    model: Ints
    step: Ints
    generation: Ints
    first_ready: Ints
    last_ready: Ints
    done: Ints
    busy: Ints
    exposed: Ints
    wire_busy: Ints
    period: Ints
    gradient_bytes: Ints
    wire_bytes: Ints
    bus_bytes: Ints
    bucket_count: Ints
    flags: Ints

    def __len__(self) -> int:
        return len(self.model)

    @property
    def counts(self) -> Bools:
        """Which steps enter statistics, as ``StepRecord.counts``."""
        found: Bools = (self.flags & ~STEP_FLAGS["detail_left_out"]) == 0
        return found

    def having(self, flag: str) -> Bools:
        """Return which steps have a flag of ``STEP_FLAGS``."""
        found: Bools = (self.flags & STEP_FLAGS[flag]) != 0
        return found


@dataclass(slots=True)
class RankTrack:
    """What one rank's record files hold.

    ``models``: (model, hook), in order of appearance.  ``facts``: what a bucket is in all its
    calls, by ``BucketColumns.facts``.  ``errors``, ``exceptions``: by row in ``buckets``.
    ``records``: all else that the files hold: the run, layouts, anomalies, clocks, skews, and what
    was skipped or lost.
    """

    models: list[tuple[str, str]]
    facts: list[BucketFacts]
    buckets: BucketColumns
    stages: StageColumns
    steps: StepColumns
    errors: dict[int, ErrorRecord]
    exceptions: dict[int, str]
    records: RankRecords
    paths: list[str] = field(default_factory=list)

    @property
    def rank(self) -> int:
        """The rank; 0 where even the first line is gone."""
        return self.records.run.rank if self.records.run is not None else 0

    def is_of(self, columns: BucketColumns | StepColumns, model: str) -> Bools:
        """Return which rows are a model's, whatever hook it had."""
        ids = [i for i, (name, _) in enumerate(self.models) if name == model]
        return np.isin(columns.model, ids)

    def bucket_of_stages(self) -> Ints:
        """Return the row in ``buckets`` of each row in ``stages``."""
        return np.repeat(np.arange(len(self.buckets)), self.buckets.stages)

    def time_in_stages(self) -> Ints:
        """Return the ns that each bucket was in each of ``STAGE_NAMES``, (buckets, stages)."""
        stages, kinds = self.stages, len(STAGE_NAMES)
        length = np.clip(stages.end - stages.start, 0, None)
        place = self.bucket_of_stages() * kinds + stages.name
        sums = np.bincount(place, weights=length, minlength=len(self.buckets) * kinds)
        found: Ints = sums.astype(np.int64).reshape(-1, kinds)
        return found
