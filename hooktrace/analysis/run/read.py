"""Record files to columns, a block of lines at a time.

    file --blocks--> some 400 lines --RecordReader, one call of msgspec--> lines
        --attrgetter, numpy.fromiter--> rows of numbers --ColumnBuilder.track--> RankTrack

A device bucket is put where its step's first bucket became ready on the host, plus its device
times; that of a step that was cut off and has no line, where its own hook was called.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import accumulate
from operator import attrgetter
from typing import Any

import numpy as np

from ...records import ErrorRecord, RunInfo, StepRecord
from ...records.bucket import BucketFacts, StageKind
from ...records.content import RankRecords
from ...records.lines import STAGE_COLUMNS, BucketLine, Shared, StageTimes
from ...records.lines import UNKNOWN as UNKNOWN_LINE
from ...records.reader import RecordReader, read_parts
from .columns import (
    FLAGS,
    STAGE_NAMES,
    UNKNOWN,
    BucketColumns,
    Ints,
    RankTrack,
    StageColumns,
    StepColumns,
    packed,
)


def read_track(paths: Sequence[str | os.PathLike[str]], *, every: int = 1) -> RankTrack:
    """Read the record files of one rank and run, oldest first.

    ``every``: of the steps whose number it divides the buckets are kept; those of the others are
    read and left out, as a writer leaves out what its file has no room for.

    Lines and files that cannot be read are skipped and named in ``records.skipped``.
    """
    builder = ColumnBuilder(every)
    return builder.track(read_parts(paths, builder.reader), paths)


class _Table:
    """Columns in the making; what was given out stays as it is when rows are added."""

    def __init__(self) -> None:
        self._blocks: dict[str, list[Ints]] = {}

    def add(self, rows: dict[str, Ints]) -> None:
        for name, values in rows.items():
            self._blocks.setdefault(name, []).append(values)

    def put_before(self, table: _Table) -> None:
        """Begin with the rows of another table."""
        for name, values in table._blocks.items():
            self._blocks[name] = [*values, *self._blocks.get(name, [])]

    def __getstate__(self) -> dict[str, object]:
        return {"_blocks": {name: [self[name]] for name in self._blocks}}  # few large ones

    def __getitem__(self, name: str) -> Ints:
        blocks = self._blocks.get(name) or [np.zeros(0, np.int64)]
        self._blocks[name] = blocks = [np.concatenate(blocks)] if len(blocks) > 1 else blocks
        return blocks[0]


class ColumnBuilder:
    """Rows in the making; ``track`` returns what was read, also before all is."""

    def __init__(self, every: int = 1) -> None:
        self._every = every
        self._models: dict[tuple[str, str], int] = {}
        self._facts: dict[tuple[str, BucketFacts], int] = {}
        self._buckets, self._stages, self._steps = _Table(), _Table(), _Table()
        self._new_steps: list[StepRecord] = []
        self._errors: dict[int, ErrorRecord] = {}
        self._exceptions: dict[int, str] = {}
        self._unknown_bytes: Counter[tuple[str, str]] = Counter()
        self._count = 0

    def reader(self, run: RunInfo | None = None) -> RecordReader:
        """Return what reads one file, a part of ``run`` where that is known, in portions."""
        return RecordReader(run=run, buckets=self._take_buckets, steps=self._take_steps)

    def take_rows(self) -> list[_Table]:
        """Give away the rows so far; what is read next goes on from there."""
        self._add_steps()
        given = [self._buckets, self._stages, self._steps]
        self._buckets, self._stages, self._steps = _Table(), _Table(), _Table()
        return given

    def put_before(self, rows: list[_Table]) -> None:
        """Take back what ``take_rows`` gave away."""
        for table, before in zip((self._buckets, self._stages, self._steps), rows, strict=True):
            table.put_before(before)

    def _take_buckets(self, lines: Sequence[BucketLine], shared: Shared) -> None:
        """Add buckets.  What raises does so before anything is added: no half row stays behind."""
        if self._every > 1:
            lines = [line for line in lines if line.step % self._every == 0]
        if not lines:
            return
        of_lines = _Fields(lines, _OF_LINE)
        devices = of_lines["device"]
        is_on_device = not of_lines.is_absent("device")
        timed, of_times = lines, of_lines
        if is_on_device:
            timed = [device or line for device, line in zip(devices, lines, strict=True)]
            of_times = _Fields(timed, _OF_TIMES)
        numbers = of_lines.whole("shared")
        common = {n: shared.get(n, UNKNOWN_LINE) for n in set(of_lines["shared"])}
        kinds = {n: one.device_stages or one.stages for n, one in common.items()}
        stages, count = _stage_rows(timed, of_times, numbers, kinds)
        sent = of_lines.known("wire_bytes")
        buckets = {
            **{column: of_lines.whole(field) for column, field in _OF_LINES.items()},
            "wire_bytes": sent,
            "bus_bytes": _bus_bytes(of_lines.known("bus_bytes"), sent, numbers, common),
            **{column: of_lines.known(field) for column, field in _MAYBE_OF_LINES.items()},
            "ready": of_times.whole("ready_ns"),
            "done": of_times.whole("done_ns"),
            "on_device": _ints((device is not None for device in devices), len(lines))
            if is_on_device
            else np.zeros(len(lines), np.int64),
            "stages": count,
            "facts": self._facts_of(of_lines, {n: one.facts for n, one in common.items()}),
        }
        self._buckets.add(buckets)
        self._stages.add(stages)
        self._errors |= of_lines.few("error", self._count)
        self._exceptions |= of_lines.few("exception", self._count)
        self._count += len(lines)

    def _facts_of(self, fields: _Fields, facts: Mapping[int, BucketFacts]) -> Ints:
        """Return the index of what each line's shared one says of its bucket."""
        keys = list(zip(fields["model"], fields["shared"], strict=True))
        said = {key: self._facts_id(key[0], facts[key[1]]) for key in dict.fromkeys(keys)}
        return _ints(map(said.__getitem__, keys), len(keys))

    def _facts_id(self, model: str, facts: BucketFacts) -> int:
        self._model(model, facts.hook)
        return self._facts.setdefault((model, facts), len(self._facts))

    def _model(self, model: str, hook: str) -> int:
        return self._models.setdefault((model, hook), len(self._models))

    def _take_steps(self, steps: Sequence[StepRecord]) -> None:
        self._new_steps += steps  # a block has too few of them to be worth arrays
        if len(self._new_steps) >= _WORTH_ARRAYS:
            self._add_steps()

    def _add_steps(self) -> None:
        steps, self._new_steps = self._new_steps, []
        fields = _Fields(steps, (*_OF_STEPS.values(), *_KNOWN_OF_STEPS.values()))
        rows = {column: fields.whole(field) for column, field in _OF_STEPS.items()}
        rows |= {column: fields.known(field) for column, field in _KNOWN_OF_STEPS.items()}
        rows["model"] = _ints((self._model(x.model, x.hook) for x in steps), len(steps))
        rows["on_device"] = _ints((x.clock == "device" for x in steps), len(steps))
        rows["kept"] = _ints((_KEPT.get(x.kept_for, 0) for x in steps), len(steps))
        if self._every > 1:
            is_kept = rows["step"] % self._every == 0
            whole = (rows["detail_kept"] != 0) & (rows["kept"] == 0)
            rows["kept"] = np.where(is_kept, rows["kept"], 0)
            rows["kept"] |= np.where(whole & is_kept, FLAGS["kept_by_window"], 0)
            rows["detail_kept"] &= is_kept
        self._steps.add(rows)
        self._unknown_bytes.update((x.model, x.sent_unknown) for x in steps if x.sent_unknown)

    def track(self, records: RankRecords, paths: Sequence[str | os.PathLike[str]]) -> RankTrack:
        """Return what was read; ``records``: what the readers of ``paths`` hold beside it."""
        self._add_steps()
        steps, stages = self._step_columns(), self._stages
        return RankTrack(
            models=list(self._models),
            facts=[facts for _, facts in self._facts],
            buckets=self._bucket_columns(steps),
            stages=StageColumns(
                name=stages["name"].astype(np.int8),
                start=packed(stages["start"]),
                end=packed(stages["end"]),
                derived=stages["derived"].astype(bool),
            ),
            steps=steps,
            errors=dict(self._errors),
            exceptions=dict(self._exceptions),
            unknown_bytes=self._unknown_bytes.copy(),
            records=records,
            paths=[os.fspath(path) for path in paths],
        )

    def _step_columns(self) -> StepColumns:
        found = self._steps
        flags = (
            found["shadow"] * FLAGS["shadow"]
            | found["warmup"] * FLAGS["warmup"]
            | (found["complete"] == 0) * FLAGS["incomplete"]
            | (found["detail_kept"] == 0) * FLAGS["detail_left_out"]
            | found["probed"] * FLAGS["probed"]
            | found["sharded"] * FLAGS["sharded"]
            | found["on_device"] * FLAGS["device"]
            | found["kept"]
        )
        names = {"model", *_OF_STEPS, *_KNOWN_OF_STEPS} & set(StepColumns.__dataclass_fields__)
        whole = {name: found[name] for name in names if name in _MOMENTS}
        small = {name: packed(found[name]) for name in names if name not in _MOMENTS}
        return StepColumns(**whole, **small, flags=packed(flags))

    def _bucket_columns(self, steps: StepColumns) -> BucketColumns:
        """Return the buckets; steps whose buckets are there after all are told so."""
        found, every = self._buckets, list(self._facts)
        facts, called, on_device = found["facts"], found["called"], found["on_device"] != 0
        model = np.array([self._models[name, f.hook] for name, f in every], np.int64)[facts]
        of_step = steps.rows_of(model, found["step"])
        # The step after them was slow: its buckets, and those before it, came then.
        steps.flags[of_step[of_step != UNKNOWN]] &= ~FLAGS["detail_left_out"]
        first = np.append(steps.first_ready, 0)[of_step]
        zero = np.where(on_device, np.where(of_step == UNKNOWN, called, first), 0)
        flags = (
            found["shadow"] * FLAGS["shadow"]
            | found["warmup"] * FLAGS["warmup"]
            | found["probed"] * FLAGS["probed"]
            | on_device * FLAGS["device"]
            | np.array([f.is_last for _, f in every], bool)[facts] * FLAGS["is_last"]
            | (np.array([f.device_type != "cpu" for _, f in every], bool)[facts] & ~on_device)
            * FLAGS["untimed"]
            | np.array([f.unit is not None for _, f in every], bool)[facts] * FLAGS["sharded"]
        )
        flags[list(self._exceptions)] |= FLAGS["exception"]
        return BucketColumns(
            model=packed(model),
            step=found["step"],
            generation=packed(found["generation"]),
            called=called,
            ready_after=packed(found["ready"] + zero - called),
            done_after=packed(found["done"] + np.where(on_device, zero - called, 0)),
            gradient_bytes=packed(np.array([f.gradient_bytes for _, f in every], np.int64)[facts]),
            wire_bytes=packed(found["wire_bytes"]),
            bus_bytes=packed(found["bus_bytes"]),
            flags=packed(flags),
            facts=packed(facts),
            stages=packed(found["stages"]),
            **{name: packed(found[name]) for name in (*_AS_THEY_ARE, *_MAYBE_OF_LINES)},
        )


_AS_THEY_ARE, _MAYBE_OF_LINES = (
    {one.name: one.metadata[how] for one in fields(BucketColumns) if how in one.metadata}
    for how in ("line", "maybe")
)
_OF_LINES = {
    **{name: name for name in ("step", "generation", "shadow", "warmup", "probed")},
    "called": "ready_ns",
    **_AS_THEY_ARE,
}
_OF_STEPS = {
    **{name: name for name in ("step", "generation", "gradient_bytes", "bucket_count")},
    **{name: name for name in ("shadow", "warmup", "complete", "probed", "sharded", "detail_kept")},
    **{name: f"{name}_ns" for name in ("first_ready", "last_ready", "done")},
}
_MOMENTS = ("step", "first_ready", "last_ready", "done")
"""Which are added to numbers that four bytes do not hold."""
_KNOWN_OF_STEPS = {
    **{name: name for name in ("wire_bytes", "bus_bytes")},
    **{name: f"{name}_ns" for name in ("busy", "exposed", "wire_busy", "previous_period")},
}
"""Columns of what is not always known."""
_KEPT: dict[str | None, int] = {"window": FLAGS["kept_by_window"], "first": FLAGS["kept_as_first"]}
_OF_TIMES = ("ready_ns", "done_ns", "stage_ns", "stage_starts_ns", *STAGE_COLUMNS)
_OF_LINE = (
    *{*_OF_LINES.values(), *_MAYBE_OF_LINES.values(), *_OF_TIMES},
    *("model", "shared", "device", "wire_bytes", "bus_bytes", "error", "exception"),
)
_Kinds = Mapping[int, Sequence[StageKind]]
"""The stages that lines share, by the number of the line that says them."""
_WORTH_ARRAYS = 1000
_MOST = 1 << 62
"""Of the bytes of a bus, which are a float."""
_STAGE_IDS = {name: index for index, name in enumerate(STAGE_NAMES)}


class _Fields:
    """Some fields of many records, each as a tuple: one look at a record takes all of them."""

    def __init__(self, records: Sequence[object], names: Sequence[str]) -> None:
        found = zip(*map(attrgetter(*names), records), strict=True)
        self._count = len(records)
        self._values = dict(zip(names, found, strict=True)) if records else dict.fromkeys(names, ())

    def __getitem__(self, name: str) -> tuple[Any, ...]:
        return self._values[name]

    def is_absent(self, name: str) -> bool:
        """Return whether no record has the field, which is ``None`` then."""
        return self._values[name].count(None) == self._count

    def whole(self, name: str) -> Ints:
        """Return a whole number of each record."""
        return _ints(self._values[name], self._count)

    def known(self, name: str) -> Ints:
        """Return a number of each record, to 53 bits; ``UNKNOWN`` where it is ``None``."""
        if self.is_absent(name):
            return np.full(self._count, UNKNOWN)
        values = np.array(self._values[name], np.float64)
        values[np.isnan(values)] = UNKNOWN
        return values.clip(-_MOST, _MOST).astype(np.int64)

    def few(self, name: str, first_row: int) -> dict[int, Any]:
        """Return what few records have, by row."""
        if self.is_absent(name):
            return {}
        values = enumerate(self._values[name], first_row)
        return {row: one for row, one in values if one is not None}


def _stage_rows(
    timed: Sequence[StageTimes], fields: _Fields, numbers: Ints, kinds: _Kinds
) -> tuple[dict[str, Ints], Ints]:
    """Return columns of all stages of some lines, and how many each line has.

    ``numbers``: of the lines that say the ``kinds`` of their stages.  Raises ``ValueError`` for
    stages that are not as many as their beginnings.
    """
    # Of each line a row of all stages that occur, in order; most lines have the same three.
    occur = [i for i, name in enumerate(STAGE_COLUMNS) if not fields.is_absent(name)]
    took = np.array([fields[STAGE_COLUMNS[i]] for i in occur], np.float64)
    took = took.reshape(len(occur), len(timed)).T
    is_there = ~np.isnan(took)
    one_by_one = []
    if any(fields["stage_ns"]) or any(fields["stage_starts_ns"]):
        one_by_one = [i for i, one in enumerate(timed) if one.stage_ns or one.stage_starts_ns]
        is_there[one_by_one] = False
    ends = np.where(is_there, took, 0).cumsum(axis=1)
    count = np.count_nonzero(is_there, axis=1)
    row, place = np.nonzero(is_there)
    name = np.array(occur, np.int64)[place]
    end, length = ends[is_there], took[is_there]
    derived = np.zeros(len(row), bool)
    for number, of_number in kinds.items():
        if names := [_STAGE_IDS[kind.name] for kind in of_number if kind.derived]:
            derived |= (numbers == number)[row] & np.isin(name, names)
    found = {"row": row, "name": name, "start": end - length, "end": end, "derived": derived}
    whole = {column: values.astype(np.int64) for column, values in found.items()}
    if one_by_one:
        for row_number in one_by_one:
            timed[row_number].check()
        numbered = [(at, timed[at], kinds[int(numbers[at])]) for at in one_by_one]
        more = [stage for one in numbered for stage in _one_by_one(*one)]
        added = np.array(more, np.int64).reshape(-1, len(whole))
        order = np.argsort(np.concatenate([whole["row"], added[:, 0]]), kind="stable")
        for column, values in zip(whole, added.T, strict=True):
            whole[column] = np.concatenate([whole[column], values])[order]
        count += np.bincount(added[:, 0], minlength=len(timed))
    del whole["row"]
    return whole, count


def _one_by_one(
    row: int, line: StageTimes, kinds: Sequence[StageKind]
) -> Iterator[tuple[int, ...]]:
    """Yield row, name, start, end and whether derived of stages, if their names are there."""
    if len(kinds) != len(line.stage_ns):
        return
    starts = line.stage_starts_ns or (0, *accumulate(line.stage_ns))
    for kind, start, took in zip(kinds, starts, line.stage_ns, strict=False):
        yield row, _STAGE_IDS[kind.name], start, start + took, kind.derived


def _ints(values: Iterable[int], count: int) -> Ints:
    return np.fromiter(values, np.int64, count)


def _bus_bytes(found: Ints, sent: Ints, numbers: Ints, common: Shared) -> Ints:
    """Return the bytes on the bus, which many lines leave to what they share."""
    is_left = (found == UNKNOWN) & (sent != UNKNOWN)
    for number, line in common.items():
        if line.bus_per_byte is not None:
            rows = is_left & (numbers == number)
            found[rows] = np.minimum(sent[rows] * line.bus_per_byte, _MOST).astype(np.int64)
    return found
