"""Record files to columns, a block of lines at a time.

    file --blocks--> some 1,000 lines --RecordReader, one call of msgspec--> lines
        --attrgetter, numpy.fromiter--> rows of numbers --ColumnBuilder.track--> RankTrack

A device bucket is put where its step's first bucket became ready on the host, plus its device
times.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

import numpy as np

from ...records import ErrorRecord, RunInfo, StepRecord
from ...records.content import RankRecords
from ...records.damage import LONGEST_LINE
from ...records.lines import BucketFacts, BucketLine
from ...records.reader import RecordReader
from .columns import (
    BUCKET_FLAGS,
    STAGE_NAMES,
    STEP_FLAGS,
    UNKNOWN,
    BucketColumns,
    Ints,
    RankTrack,
    StageColumns,
    StepColumns,
    packed,
)


def read_track(paths: Sequence[str | os.PathLike[str]]) -> RankTrack:
    """Read the record files of one rank and run, oldest first.

    Lines that cannot be read are skipped and named in ``records.skipped``; raises ``OSError`` for a
    file that cannot be opened.
    """
    builder = ColumnBuilder()
    parts: list[RankRecords] = []
    for path in paths:
        reader = builder.reader(next((part.run for part in parts if part.run is not None), None))
        for block in _blocks(path):
            reader.feed_block(block)
        parts.append(reader.content())
    return builder.track(joined(parts, paths), [os.fspath(path) for path in paths])


def _blocks(path: str | os.PathLike[str]) -> Iterator[bytes]:
    """Yield a file in blocks of whole lines; of one longer than hooktrace's only the beginning."""
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            rest = file.readline(LONGEST_LINE)
            yield block + rest
            while len(rest) == LONGEST_LINE and not rest.endswith(b"\n"):
                rest = file.readline(LONGEST_LINE)


_BLOCK = 1 << 18
"""Bytes: enough lines that what a block costs does not count, few enough to stay in the cache."""


def joined(parts: Sequence[RankRecords], paths: Sequence[str | os.PathLike[str]]) -> RankRecords:
    """Return what the parts of one run hold together, but for buckets and steps."""
    whole = RankRecords()
    for part, path in zip(parts, paths, strict=True):
        whole.join(part, os.path.basename(path) if len(paths) > 1 else None)
    return whole


class ColumnBuilder:
    """Rows in the making; ``track`` copies them, so that more may come."""

    def __init__(self) -> None:
        self._models: dict[tuple[str, str], int] = {}
        self._facts: dict[tuple[str, BucketFacts], int] = {}
        self._buckets: list[Ints] = []
        self._stages: list[Ints] = []
        self._steps: list[list[int]] = []
        self._errors: dict[int, ErrorRecord] = {}
        self._exceptions: dict[int, str] = {}
        self._count = 0

    def reader(self, run: RunInfo | None = None) -> RecordReader:
        """Return what reads one file, a part of ``run`` where that is known, in portions."""
        return RecordReader(run=run, buckets=self._take, step=self._take_step)

    def _take(
        self, lines: Sequence[BucketLine], facts_of: Callable[[BucketLine], BucketFacts]
    ) -> None:
        """Add buckets.  What raises does so before anything is added: no half row stays behind."""
        timed = [line if line.device is None else line.device for line in lines]
        stages = list(chain.from_iterable(map(_STAGES, timed)))
        numbers = np.column_stack(
            [
                _numbers(_OF_LINE, lines),
                _numbers(_OF_TIMED, timed),
                _optional("wire_bytes", lines),
                _optional("bus_bytes", lines),
                self._facts_of(lines, facts_of),
                _counts(map(len, map(_STAGES, timed)), len(lines)),
                _counts((a is not b for a, b in zip(lines, timed, strict=True)), len(lines)),
            ]
        )
        names = _stage_ids(map(_NAME, stages), len(stages))
        self._stages.append(np.column_stack([names, _numbers(_OF_STAGE, stages)]))
        self._buckets.append(numbers)
        self._errors |= _known("error", lines, self._count)
        self._exceptions |= _known("exception", lines, self._count)
        self._count += len(lines)

    def _facts_of(
        self, lines: Sequence[BucketLine], facts_of: Callable[[BucketLine], BucketFacts]
    ) -> Ints:
        said = list(map(_HOOK, lines))
        if said.count(None) < len(said):  # some say for themselves what the layout does not
            return _counts((self._facts_id(x.model, facts_of(x)) for x in lines), len(lines))
        keys = list(map(_KEY, lines))
        ids = {
            key: self._facts_id(line.model, facts_of(line))
            for key, line in dict(zip(keys, lines, strict=True)).items()
        }
        return _counts(map(ids.__getitem__, keys), len(lines))

    def _facts_id(self, model: str, facts: BucketFacts) -> int:
        self._model(model, facts.hook)
        return self._facts.setdefault((model, facts), len(self._facts))

    def _model(self, model: str, hook: str) -> int:
        return self._models.setdefault((model, hook), len(self._models))

    def _take_step(self, step: StepRecord) -> None:
        flags = sum(bit for name, bit in _STEP_MARKS if getattr(step, name))
        flags |= 0 if step.complete else STEP_FLAGS["incomplete"]
        flags |= 0 if step.detail_kept else STEP_FLAGS["detail_left_out"]
        numbers = map(_whole, _OF_STEP(step))
        self._steps.append([self._model(step.model, step.hook), *numbers, flags])

    def track(self, records: RankRecords, paths: list[str]) -> RankTrack:
        """Return what was read."""
        table = np.array(self._steps, np.int64).reshape(-1, len(_STEP_FIELDS))
        steps = StepColumns(*np.array(table.T, order="C"))
        names, start, end, derived = _table(self._stages, 4)
        buckets = self._bucket_columns(steps)
        _see_what_was_kept_after_all(buckets, steps)
        return RankTrack(
            models=list(self._models),
            facts=[facts for _, facts in self._facts],
            buckets=buckets,
            stages=StageColumns(
                names.astype(np.int8), packed(start), packed(end), derived.astype(bool)
            ),
            steps=steps,
            errors=dict(self._errors),
            exceptions=dict(self._exceptions),
            records=records,
            paths=paths,
        )

    def _bucket_columns(self, steps: StepColumns) -> BucketColumns:
        columns = _table(self._buckets, len(_BUCKET_NUMBERS))
        found = dict(zip(_BUCKET_NUMBERS, columns, strict=True))
        facts, on_device = found["facts"], found["on_device"] != 0
        every = list(self._facts)
        models = np.array([self._models[model, f.hook] for model, f in every], np.int64)
        called = found["called"].copy()
        zero = np.where(on_device, _first_ready(steps, found, models, called), 0)
        flags = (
            found["shadow"] * BUCKET_FLAGS["shadow"]
            | found["warmup"] * BUCKET_FLAGS["warmup"]
            | on_device * BUCKET_FLAGS["device"]
            | np.array([f.is_last for _, f in every], bool)[facts] * BUCKET_FLAGS["is_last"]
            | (np.array([f.device_type != "cpu" for _, f in every], bool)[facts] & ~on_device)
            * BUCKET_FLAGS["untimed"]
        )
        flags[list(self._exceptions)] |= BUCKET_FLAGS["exception"]
        return BucketColumns(
            step=found["step"].copy(),
            bucket=packed(found["bucket"]),
            generation=packed(found["generation"]),
            called=called,
            launched_after=packed(found["launched"]),
            ready_after=packed(found["ready"] + zero - called),
            done_after=packed(found["done"] + np.where(on_device, zero - called, 0)),
            wire_bytes=packed(found["wire_bytes"]),
            bus_bytes=packed(found["bus_bytes"]),
            flags=packed(flags),
            facts=packed(facts),
            stages=packed(found["stages"]),
            models_of_facts=models,
            bytes_of_facts=np.array([f.gradient_bytes for _, f in every], np.int64),
        )


_OF_LINE = ("step", "bucket", "generation", "ready_ns", "launched_ns", "shadow", "warmup")
_OF_TIMED = ("ready_ns", "done_ns")
_OF_STAGE = ("start_ns", "end_ns", "derived")
_BUCKET_NUMBERS = (
    *("step", "bucket", "generation", "called", "launched", "shadow", "warmup", "ready", "done"),
    *("wire_bytes", "bus_bytes", "facts", "stages", "on_device"),
)
_STEP_FIELDS = tuple(StepColumns.__dataclass_fields__)
_OF_STEP = attrgetter(
    *("step", "generation", "first_ready_ns", "last_ready_ns", "done_ns", "busy_ns", "exposed_ns"),
    *("wire_busy_ns", "period_ns", "gradient_bytes", "wire_bytes", "bus_bytes", "bucket_count"),
)
_STEP_MARKS = tuple((name, STEP_FLAGS[name]) for name in ("shadow", "warmup"))
_STAGES, _NAME, _HOOK = attrgetter("stages"), attrgetter("name"), attrgetter("hook")
_KEY = attrgetter("model", "generation", "bucket")
_MOST = 1 << 62
"""Of the bytes of a bus, which are a float."""
_STAGE_IDS = {name: index for index, name in enumerate(STAGE_NAMES)}


def _stage_ids(names: Iterable[str], count: int) -> Ints:
    try:
        return _counts(map(_STAGE_IDS.__getitem__, names), count)
    except KeyError as error:
        raise ValueError(f"no stage is called {error}") from None


def _whole(value: float | None) -> int:
    """Return what a column of 64 bits holds of a number."""
    if value is None:
        return UNKNOWN
    return value if isinstance(value, int) else int(max(-_MOST, min(value, _MOST)))


def _counts(values: Iterable[int], count: int) -> Ints:
    return np.fromiter(values, np.int64, count)


def _numbers(names: Sequence[str], records: Sequence[object]) -> Ints:
    """Return fields of records, (records, names)."""
    values = chain.from_iterable(map(attrgetter(*names), records))
    return _counts(values, len(names) * len(records)).reshape(-1, len(names))


def _optional(name: str, records: Sequence[object]) -> Ints:
    values = list(map(attrgetter(name), records))
    if None in values:
        values = [UNKNOWN if value is None else value for value in values]
    return _counts(values, len(values))


def _known(name: str, records: Sequence[object], first_row: int) -> dict[int, Any]:
    """Return what few records have, by row."""
    values = list(map(attrgetter(name), records))
    if values.count(None) == len(values):
        return {}
    return {row: one for row, one in enumerate(values, first_row) if one is not None}


def _table(blocks: Sequence[Ints], width: int) -> list[Ints]:
    """Return the columns of blocks of rows."""
    whole = np.concatenate(blocks) if blocks else np.zeros((0, width), np.int64)
    return list(whole.T)


def _first_ready(steps: StepColumns, found: dict[str, Ints], models: Ints, called: Ints) -> Ints:
    """Return when the first bucket of each device bucket's step was ready on the host.

    A step that was cut off has no line: the bucket's own host time says nearly the same.
    """
    result = called.copy()
    rows = np.flatnonzero(found["on_device"])
    if len(rows):
        first = dict(zip(zip(steps.model.tolist(), steps.step.tolist(), strict=True),
                         steps.first_ready.tolist(), strict=True))  # fmt: skip
        keys = zip(models[found["facts"][rows]].tolist(), found["step"][rows].tolist(), strict=True)
        for row, key in zip(rows.tolist(), keys, strict=True):
            result[row] = first.get(key, called[row])
    return result


def _see_what_was_kept_after_all(buckets: BucketColumns, steps: StepColumns) -> None:
    """Clear the flag of steps whose buckets follow them: the step after them was slow."""
    rows = np.flatnonzero(steps.having("detail_left_out"))
    if not len(rows) or not len(buckets):
        return
    having = set(zip(buckets.model.tolist(), buckets.step.tolist(), strict=True))
    left = zip(steps.model[rows].tolist(), steps.step[rows].tolist(), strict=True)
    kept = rows[[key in having for key in left]]
    steps.flags[kept] &= ~STEP_FLAGS["detail_left_out"]
