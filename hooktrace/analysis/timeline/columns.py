"""One rank's record files as columns: int64 arrays in the file's order, in place of records.

    lines --RecordReader--> a bucket or a step --one row--> array('q') --> numpy columns
                            all else (layouts, anomalies, clocks, errors): records, they are few

A bucket takes about 300 bytes with its stages, a fifth of its record.  What a file does not know
(``None``) is ``UNKNOWN`` in a column.  A device bucket is put where its step's first bucket became
ready on the host, plus its device times, as the Perfetto file shows it.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ...records import STAGES, ErrorRecord, RunInfo, StepRecord
from ...records.codec import RecordReader, read_lines
from ...records.content import RankRecords
from ...records.lines import BucketFacts, BucketLine

__all__ = [
    "BUCKET_FLAGS",
    "STAGE_NAMES",
    "STEP_FLAGS",
    "UNKNOWN",
    "BucketColumns",
    "Ints",
    "RankTrack",
    "StageColumns",
    "StepColumns",
    "read_track",
]

Ints = npt.NDArray[np.int64]

UNKNOWN = -1

STAGE_NAMES = STAGES
"""A stage's ``name`` is an index into these."""

BUCKET_FLAGS = {"is_last": 1, "shadow": 2, "warmup": 4, "exception": 8, "device": 16, "untimed": 32}
"""Bits of a bucket's ``flags``.  ``untimed``: on a device whose events did not resolve."""

STEP_FLAGS = {"shadow": 2, "warmup": 4, "incomplete": 64, "detail_left_out": 128}
"""Bits of a step's ``flags``.  ``detail_left_out``: its buckets are not there because the writer's
retention left them out; they are not missing."""


@dataclass(frozen=True, slots=True)
class BucketColumns:
    """Buckets.  ``model``: index into ``RankTrack.models``.  ``ready``, ``done``: in ns.

    ``called``: the host's time when the hook was called, also of a device bucket.
    ``first_stage`` and ``stages``: where the bucket's rows begin in ``StageColumns``, and how many.
    """

    model: Ints
    step: Ints
    bucket: Ints
    generation: Ints
    called: Ints
    launched: Ints
    ready: Ints
    done: Ints
    numel: Ints
    gradient_bytes: Ints
    wire_bytes: Ints
    bus_bytes: Ints
    flags: Ints
    dtype: Ints
    first_stage: Ints
    stages: Ints

    def __len__(self) -> int:
        return len(self.model)

    def having(self, flag: str) -> npt.NDArray[np.bool_]:
        """Return which buckets have a flag of ``BUCKET_FLAGS``."""
        found: npt.NDArray[np.bool_] = (self.flags & BUCKET_FLAGS[flag]) != 0
        return found


@dataclass(frozen=True, slots=True)
class StageColumns:
    """Stages of buckets, in host ns; ``bucket`` is the row in ``BucketColumns``."""

    name: Ints
    start: Ints
    end: Ints
    derived: Ints
    bucket: Ints

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
    def counts(self) -> npt.NDArray[np.bool_]:
        """Which steps enter statistics, as ``StepRecord.counts``."""
        found: npt.NDArray[np.bool_] = (self.flags & ~STEP_FLAGS["detail_left_out"]) == 0
        return found

    def having(self, flag: str) -> npt.NDArray[np.bool_]:
        """Return which steps have a flag of ``STEP_FLAGS``."""
        found: npt.NDArray[np.bool_] = (self.flags & STEP_FLAGS[flag]) != 0
        return found


@dataclass(slots=True)
class RankTrack:
    """What one rank's record files hold.

    ``models``: (model, hook), in order of appearance.  ``dtypes``: names, by a bucket's ``dtype``.
    ``errors``, ``exceptions``: by row in ``buckets``.  ``trace``: all else that the files hold: the
    run, layouts, anomalies, clocks, skews, and what was skipped or lost.
    """

    models: list[tuple[str, str]]
    dtypes: list[str]
    buckets: BucketColumns
    stages: StageColumns
    steps: StepColumns
    errors: dict[int, ErrorRecord]
    exceptions: dict[int, str]
    trace: RankRecords
    paths: list[str] = field(default_factory=list)

    @property
    def rank(self) -> int:
        """The rank; 0 where even the first line is gone."""
        return self.trace.run.rank if self.trace.run is not None else 0

    def is_of(self, columns: BucketColumns | StepColumns, model: str) -> npt.NDArray[np.bool_]:
        """Return which rows are a model's, whatever hook it had."""
        return np.isin(
            columns.model, [i for i, (name, _) in enumerate(self.models) if name == model]
        )

    def time_in_stages(self) -> Ints:
        """Return the ns that each bucket was in each of ``STAGE_NAMES``, (buckets, stages)."""
        stages, kinds = self.stages, len(STAGE_NAMES)
        length = np.clip(stages.end - stages.start, 0, None)
        place = stages.bucket * kinds + stages.name
        sums = np.bincount(place, weights=length, minlength=len(self.buckets) * kinds)
        found: Ints = sums.astype(np.int64).reshape(-1, kinds)
        return found


def read_track(paths: Sequence[str | os.PathLike[str]]) -> RankTrack:
    """Read the record files of one rank and run, oldest first.

    Lines that cannot be read are skipped and named in ``trace.skipped``; raises ``OSError`` for a
    file that cannot be opened.
    """
    builder = Builder()
    parts: list[RankRecords] = []
    for path in paths:
        run = next((part.run for part in parts if part.run is not None), None)
        parts.append(builder.read(read_lines(path), run))
    return builder.track(joined(parts, paths), [os.fspath(path) for path in paths])


def joined(parts: Sequence[RankRecords], paths: Sequence[str | os.PathLike[str]]) -> RankRecords:
    """Return what the parts of one run hold together, but for buckets and steps."""
    whole = RankRecords()
    for part, path in zip(parts, paths, strict=True):
        whole.join(part, os.path.basename(path) if len(paths) > 1 else None)
    return whole


class Builder:
    """Rows in the making; ``track`` copies them, so that more may come."""

    def __init__(self) -> None:
        self._models: dict[tuple[str, str], int] = {}
        self._dtypes: dict[str, int] = {}
        self._buckets = array("q")
        self._stages = array("q")
        self._steps = array("q")
        self._errors: dict[int, ErrorRecord] = {}
        self._exceptions: dict[int, str] = {}

    def read(self, lines: Iterable[bytes], run: RunInfo | None = None) -> RankRecords:
        """Take the lines of one file, a part of ``run`` where that is known."""
        decoder = self.decoder(run)
        decoder.feed(lines)
        return decoder.content()

    def decoder(self, run: RunInfo | None = None) -> RecordReader:
        """Return what reads one file, in portions if need be."""
        return RecordReader(run=run, bucket=self._bucket, step=self._step)

    def track(self, trace: RankRecords, paths: list[str]) -> RankTrack:
        """Return what was read."""
        buckets = BucketColumns(*_columns(self._buckets, BucketColumns))
        stages = StageColumns(*_columns(self._stages, StageColumns))
        steps = StepColumns(*_columns(self._steps, StepColumns))
        _place_on_host(buckets, stages, steps)
        _see_what_was_kept_after_all(buckets, steps)
        return RankTrack(
            models=list(self._models),
            dtypes=list(self._dtypes),
            buckets=buckets,
            stages=stages,
            steps=steps,
            errors=dict(self._errors),
            exceptions=dict(self._exceptions),
            trace=trace,
            paths=paths,
        )

    def _model(self, model: str, hook: str) -> int:
        return self._models.setdefault((model, hook), len(self._models))

    def _bucket(self, line: BucketLine, facts: BucketFacts) -> None:
        row = len(self._buckets) // _BUCKET_WIDTH
        device = line.device
        flags = sum(bit for name, bit in _OF_BUCKET if getattr(line, name))
        flags |= BUCKET_FLAGS["is_last"] if facts.is_last else 0
        flags |= BUCKET_FLAGS["untimed"] if device is None and facts.device_type != "cpu" else 0
        timed = line if device is None else device
        rows = []
        for s in timed.stages:
            times = timed.ready_ns + s.start_ns, timed.ready_ns + s.end_ns
            rows += [_stage_id(s.name), *times, s.derived, row]
        values = array(
            "q",
            (
                self._model(line.model, facts.hook),
                line.step,
                line.bucket,
                line.generation,
                line.ready_ns,
                line.launched_ns,
                timed.ready_ns,
                timed.done_ns,
                facts.numel,
                facts.gradient_bytes,
                _or_unknown(line.wire_bytes),
                _or_unknown(line.bus_bytes),
                flags,
                self._dtypes.setdefault(facts.dtype, len(self._dtypes)),
                len(self._stages) // _STAGE_WIDTH,
                len(timed.stages),
            ),
        )
        # Nothing of a line that cannot be read may stay behind.
        self._stages.extend(array("q", rows))
        self._buckets.extend(values)
        if line.error is not None:
            self._errors[row] = line.error
        if line.exception is not None:
            self._exceptions[row] = line.exception

    def _step(self, step: StepRecord) -> None:
        flags = sum(bit for name, bit in _OF_STEP if getattr(step, name))
        flags |= 0 if step.complete else STEP_FLAGS["incomplete"]
        flags |= 0 if step.detail_kept else STEP_FLAGS["detail_left_out"]
        values = array(
            "q",
            (
                self._model(step.model, step.hook),
                step.step,
                step.generation,
                step.first_ready_ns,
                step.last_ready_ns,
                step.done_ns,
                *(_or_unknown(getattr(step, name)) for name in _STEP_NUMBERS),
                step.bucket_count,
                flags,
            ),
        )
        self._steps.extend(values)


def _or_unknown(value: float | None) -> int:
    return UNKNOWN if value is None else int(value)


def _stage_id(name: str) -> int:
    found = _STAGE_IDS.get(name)
    if found is None:
        raise ValueError(f"no stage is called {name!r}")
    return found


_STAGE_IDS = {name: index for index, name in enumerate(STAGE_NAMES)}
_OF_BUCKET = tuple(
    (name, bit) for name, bit in BUCKET_FLAGS.items() if name not in {"is_last", "untimed"}
)
_OF_STEP = tuple((name, bit) for name, bit in STEP_FLAGS.items() if name in {"shadow", "warmup"})
_STEP_NUMBERS = (
    *("busy_ns", "exposed_ns", "wire_busy_ns", "period_ns"),
    *("gradient_bytes", "wire_bytes", "bus_bytes"),
)
_BUCKET_WIDTH = len(BucketColumns.__dataclass_fields__)
_STAGE_WIDTH = len(StageColumns.__dataclass_fields__)


def _columns(rows: array[int], kind: Any) -> Iterable[Ints]:
    table = np.frombuffer(rows, dtype=np.int64) if rows else np.zeros(0, np.int64)
    # Always a copy: an array that numpy looks into could not grow any more.
    return np.array(table.reshape(-1, len(kind.__dataclass_fields__)).T, order="C")


def _place_on_host(buckets: BucketColumns, stages: StageColumns, steps: StepColumns) -> None:
    """Add to device times the host time of their step's first ready bucket."""
    on_device = np.flatnonzero(buckets.having("device"))
    if not len(on_device):
        return
    first = {
        (model, step): ready
        for model, step, ready in zip(steps.model, steps.step, steps.first_ready, strict=True)
    }
    for row in on_device:
        # A step that was cut off has no line: the bucket's own host time says nearly the same.
        zero = first.get((buckets.model[row], buckets.step[row]), buckets.called[row])
        begin = buckets.first_stage[row]
        end = begin + buckets.stages[row]
        buckets.ready[row] += zero
        buckets.done[row] += zero
        stages.start[begin:end] += zero
        stages.end[begin:end] += zero


def _see_what_was_kept_after_all(buckets: BucketColumns, steps: StepColumns) -> None:
    """Clear the flag of steps whose buckets follow them: the step after them was slow."""
    rows = np.flatnonzero(steps.having("detail_left_out"))
    if not len(rows) or not len(buckets):
        return
    having = set(zip(buckets.model.tolist(), buckets.step.tolist(), strict=True))
    left = zip(steps.model[rows].tolist(), steps.step[rows].tolist(), strict=True)
    kept = rows[[key in having for key in left]]
    steps.flags[kept] &= ~STEP_FLAGS["detail_left_out"]
