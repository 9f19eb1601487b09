"""Record files to columns, a block of lines at a time.

    file --blocks--> some 100 lines --RecordReader, one call of msgspec--> lists of numbers
        --numpy.fromiter, a column of all lines--> arrays --ColumnBuilder.track--> RankTrack

A device bucket is put where its step's first bucket became ready on the host, plus its device
times; that of a step that was cut off and has no line, where its own hook was called.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from itertools import chain
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np

from ...records import STAGES, ErrorRecord, RunInfo, StepRecord
from ...records.bucket import BucketFacts, StageKind
from ...records.content import RankRecords
from ...records.lines import STAGE_COLUMNS, BucketsLine, Columns, Shared, SharedLine
from ...records.lines import UNKNOWN as UNKNOWN_LINE
from ...records.reader import RecordReader, read_parts
from .columns import (
    FLAGS,
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
    """Columns that grow at their end; what was given out stays as it is when rows are added.

    ``kind``: what they are given out as.
    """

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        self._new: list[dict[str, Ints]] = []
        self._values: dict[str, Ints] = {}
        self._count = 0

    def add(self, rows: dict[str, Ints]) -> None:
        self._new.append(rows)

    def columns(self) -> Any:
        """Return all columns, empty without rows; those of large numbers are not ``packed``."""
        new, self._new = self._new, []
        for name in new[0] if new else ():
            values = np.concatenate([rows[name] for rows in new])
            if name not in _LARGE and values.dtype == np.int64:
                values = packed(values)
            self._values[name] = _appended(self._values.get(name), self._count, values)
        self._count += sum(len(next(iter(rows.values()))) for rows in new)
        found = {name: values[: self._count] for name, values in self._values.items()}
        return self._kind(**found or {x.name: np.zeros(0, np.int64) for x in fields(self._kind)})


def _appended(before: Ints | None, count: int, values: Ints) -> Ints:
    """Return an array of the first ``count`` of these values and the others, with room to grow."""
    if before is None:
        return values
    end, kind = count + len(values), np.promote_types(before.dtype, values.dtype)
    if end > len(before) or kind != before.dtype:
        grown = np.empty(max(end, 2 * count), kind)
        grown[:count] = before[:count]
        before = grown
    before[count:end] = values
    return before


class ColumnBuilder:
    """Rows in the making; ``track`` returns what was read, also before all is."""

    def __init__(self, every: int = 1) -> None:
        self._every = every
        self._models: dict[tuple[str, str], int] = {}
        self._facts: dict[tuple[str, BucketFacts], int] = {}
        kinds = (BucketColumns, StageColumns, StepColumns)
        self._buckets, self._stages, self._steps = map(_Table, kinds)
        self._errors: dict[int, ErrorRecord] = {}
        self._exceptions: dict[int, str] = {}
        self._unknown_bytes: Counter[tuple[str, str]] = Counter()
        self._bounded: set[tuple[str, int]] = set()
        """Model and step of buckets that are not read, and were not timed."""
        self._count = 0

    def reader(self, run: RunInfo | None = None) -> RecordReader:
        """Return what reads one file, a part of ``run`` where that is known, in portions."""
        return RecordReader(run=run, buckets=self._take_buckets, steps=self._take_steps)

    def _take_buckets(self, lines: Sequence[BucketsLine], shared: Shared) -> None:
        if self._every > 1:
            self._bounded.update((line.model, line.step) for line in lines if line.bounded)
            lines = [line for line in lines if line.step % self._every == 0]
        if not lines:
            return
        own = _Lines(lines)
        kind, kinds = own.kinds(shared)
        models = [self._model((model, one.facts.hook)) for model, one in kinds]
        facts = [self._facts.setdefault((x, y.facts), len(self._facts)) for x, y in kinds]
        common = [one for _, one in kinds]
        stages, count = own.stages(kind, common)
        flags = np.array([_flags_of(one.facts) for one in common])[kind]
        for name in ("join_dummy", "warmup", "checked", "bounded"):
            flags |= own.of_line(name) * FLAGS[name]
        flags[own.on_device] = flags[own.on_device] & ~FLAGS["untimed"] | FLAGS["device"]
        for row, one in own.few("exception"):
            self._exceptions[self._count + row] = one
            flags[row] |= FLAGS["exception"]
        for row, one in own.few("error"):
            self._errors[self._count + row] = one
        sent = own.column("wire_bytes")
        has_ratio = np.array([one.bus_per_byte is not None for one in common])[kind]
        per_byte = np.array([one.bus_per_byte or 0.0 for one in common])[kind]
        given, is_told = own.column("bus_bytes"), (sent != UNKNOWN) & has_ratio
        product = np.where(is_told, np.minimum(sent * per_byte, _MOST).astype(np.int64), UNKNOWN)
        self._buckets.add(
            {column: own.column(field) for column, field in _BUCKETS.items()}
            | {
                "model": np.array(models)[kind],
                "step": own.of_line("step"),
                "rebuild": own.of_line("rebuild"),
                "gradient_bytes": np.array([one.facts.gradient_bytes for one in common])[kind],
                "wire_bytes": sent,
                "bus_bytes": np.where(given == UNKNOWN, product, given),
                "ready_after": np.where(own.on_device, own.timed("ready_ns"), 0),
                "done_after": own.timed("done_ns"),
                "facts": np.array(facts)[kind],
                "stages": count,
                "flags": flags,
            }
        )
        self._stages.add(stages)
        self._count += own.count

    def _model(self, names: tuple[str, str]) -> int:
        return self._models.setdefault(names, len(self._models))

    def _take_steps(self, steps: Sequence[StepRecord]) -> None:
        rows = {column: _numbers(steps, field) for column, field in _STEPS.items()}
        kept = np.array([_KEPT.get(one.kept_for, 0) for one in steps])
        has_detail = np.array([one.detail_kept for one in steps])
        if self._every > 1:
            is_read = rows["step"] % self._every == 0
            kept |= (has_detail & (kept == 0)) * FLAGS["kept_by_window"]
            kept, has_detail = kept * is_read, has_detail & is_read
        flags = kept | ~has_detail * FLAGS["detail_left_out"]
        for name in ("join_dummy", "warmup", "checked", "sharded"):
            flags |= _numbers(steps, name) * FLAGS[name]
        flags |= (1 - _numbers(steps, "complete")) * FLAGS["incomplete"]
        flags |= np.array([one.clock == "device" for one in steps]) * FLAGS["device"]
        model = np.array([self._model((one.model, one.hook)) for one in steps])
        self._steps.add(rows | {"model": model, "flags": flags})
        self._unknown_bytes.update((x.model, x.sent_unknown) for x in steps if x.sent_unknown)

    def track(self, records: RankRecords, paths: Sequence[str | os.PathLike[str]]) -> RankTrack:
        """Return what was read; ``records``: what the readers of ``paths`` hold beside it."""
        steps, buckets = _together(self._steps.columns(), self._buckets.columns())
        if self._bounded:
            names = [name for name, _ in self._models]
            each = zip(steps.model.tolist(), steps.step.tolist(), strict=True)
            marks = [((names[m], step) in self._bounded) * FLAGS["bounded"] for m, step in each]
            steps = replace(steps, flags=steps.flags | np.array(marks, np.int64))
        return RankTrack(
            models=list(self._models),
            facts=[facts for _, facts in self._facts],
            buckets=buckets,
            stages=self._stages.columns(),
            steps=steps,
            errors=dict(self._errors),
            exceptions=dict(self._exceptions),
            unknown_bytes=self._unknown_bytes.copy(),
            records=records,
            paths=[os.fspath(path) for path in paths],
        )


def _together(steps: StepColumns, buckets: BucketColumns) -> tuple[StepColumns, BucketColumns]:
    """Put a device's buckets where their step began; tell steps what their buckets say of them."""
    row = np.flatnonzero(buckets.having("device"))
    if len(row):
        of_step = steps.rows_of(buckets.model[row], buckets.step[row])
        first = np.append(steps.first_ready, 0)[of_step]
        begin = np.where(of_step == UNKNOWN, 0, first - buckets.called[row])
        ready, done = (x.astype(np.int64) for x in (buckets.ready_after, buckets.done_after))
        ready[row] += begin
        done[row] += begin
        buckets = replace(buckets, ready_after=packed(ready), done_after=packed(done))
    bounded = buckets.having("bounded")
    if steps.having("detail_left_out").any() or bounded.any():
        of_step = steps.rows_of(buckets.model, buckets.step)
        known, flags = of_step != UNKNOWN, steps.flags.copy()
        # The step after them was slow: its buckets, and those before it, came then.
        flags[of_step[known]] &= ~FLAGS["detail_left_out"]
        flags[of_step[known & bounded]] |= FLAGS["bounded"]
        steps = replace(steps, flags=flags)
    return steps, buckets


def _flags_of(facts: BucketFacts) -> int:
    """Return the flags of all calls of a bucket; one on a device is untimed until a call is."""
    return (
        facts.is_last * FLAGS["is_last"]
        | (facts.unit is not None) * FLAGS["sharded"]
        | (facts.device_type != "cpu") * FLAGS["untimed"]
    )


_BUCKETS = {"called": "ready_ns"} | {
    one.name: one.metadata["line"] for one in fields(BucketColumns) if one.metadata
}
_STEPS = {
    one.name: one.name if one.name in StepRecord.__struct_fields__ else f"{one.name}_ns"
    for one in fields(StepColumns)
    if one.name not in ("model", "flags")
}
"""Columns, each with the field of the lines that it is of."""
_LARGE = {"step", "first_ready", "last_ready", "done", "called"}
_KEPT: dict[str | None, int] = {"window": FLAGS["kept_by_window"], "first": FLAGS["kept_as_first"]}
_MOST = 1 << 62
"""Of the bytes of a bus, which are a product."""
_ABSENT = int(np.iinfo(np.int64).min)


class _Lines:
    """The buckets of some lines, one after the other; ``on_device``: which have times there."""

    def __init__(self, lines: Sequence[BucketsLine]) -> None:
        self._lines, self._calls = lines, [line.calls for line in lines]
        self._timed: list[Columns] = [line.device or line.calls for line in lines]
        self._counts = [*map(len, lines)]
        self.count = sum(self._counts)
        self.on_device = np.repeat([line.device is not None for line in lines], self._counts)

    def of_line(self, name: str) -> Ints:
        """Return a number that a line says of all its buckets, of each bucket."""
        return np.repeat(_numbers(self._lines, name), self._counts)

    def column(self, name: str) -> Ints:
        """Return the numbers in a column; ``UNKNOWN`` where a bucket has none."""
        return self._numbers(self._calls, name, UNKNOWN)

    def timed(self, name: str, absent: int = UNKNOWN) -> Ints:
        """Return a column of times, by the device where the bucket has times there."""
        return self._numbers(self._timed, name, absent)

    def _numbers(self, lines: Sequence[Columns], name: str, absent: int) -> Ints:
        values = [*map(attrgetter(name), lines)]
        if not any(values):
            return np.full(self.count, absent)
        if not all(values):
            pairs = zip(values, self._counts, strict=True)
            values = [one or [absent] * count for one, count in pairs]
        try:
            return np.fromiter(chain.from_iterable(values), np.int64, self.count)
        except TypeError:
            known = (one if None not in one else _without_none(one, absent) for one in values)
            return np.fromiter(chain.from_iterable(known), np.int64, self.count)

    def few(self, name: str) -> Iterator[tuple[int, Any]]:
        """Yield row and value of what few buckets have."""
        row = 0
        for calls, count in zip(self._calls, self._counts, strict=True):
            for at, one in enumerate(getattr(calls, name), row):
                if one is not None:
                    yield at, one
            row += count

    def kinds(self, shared: Shared) -> tuple[Ints, list[tuple[str, SharedLine]]]:
        """Return a number of each bucket, and the model and shared line that each stands for."""
        names = [*dict.fromkeys(line.model for line in self._lines)]
        of = np.repeat([names.index(line.model) for line in self._lines], self._counts)
        numbers, line_of = np.unique(self.column("shared"), return_inverse=True)
        pairs, kind = np.unique(of * len(numbers) + line_of, return_inverse=True)
        common = [shared.get(number, UNKNOWN_LINE) for number in numbers.tolist()]
        of_pairs = (divmod(one, len(numbers)) for one in pairs.tolist())
        return kind, [(names[model], common[line]) for model, line in of_pairs]

    def stages(self, kind: Ints, common: Sequence[SharedLine]) -> tuple[dict[str, Any], Ints]:
        """Return columns of all stages, and how many each bucket has; ``common``: by ``kind``."""
        kinds = [one.device_stages or one.stages for one in common]
        # Of each bucket a row of all stages that occur, in order; most have the same three.
        took = {
            i: self.timed(name, _ABSENT)
            for i, name in enumerate(STAGE_COLUMNS)
            if any(getattr(one, name) for one in self._timed)
        }
        names, lengths = np.array([*took], np.int64), np.array([*took.values()], np.int64).T
        lengths = lengths.reshape(self.count, len(names))
        is_there = lengths != _ABSENT
        odd = [*self._one_by_one(kind, kinds)]
        is_there[[row for row, _ in odd]] = False
        lengths[~is_there] = 0
        row, place = np.nonzero(is_there)
        name, end = names[place], lengths.cumsum(axis=1)[is_there]
        is_derived = np.zeros((len(kinds), len(STAGES)), np.int64)
        for i, stages in enumerate(kinds):
            is_derived[i, [STAGES.index(one.name) for one in stages if one.derived]] = 1
        found = np.stack([row, name, end - lengths[is_there], end, is_derived[kind[row], name]])
        if odd:
            more = np.array([(row, *one) for row, stages in odd for one in stages], np.int64)
            found = np.concatenate([found, more.reshape(-1, len(found)).T], axis=1)
            found = found[:, np.argsort(found[0], kind="stable")]
        row, name, start, end, derived = found
        columns = {"name": name.astype(np.int8), "start": start, "end": end}
        count = np.bincount(row, minlength=self.count)
        return columns | {"derived": derived.astype(np.bool_)}, count

    def _one_by_one(
        self, kind: Ints, kinds: Sequence[Sequence[StageKind]]
    ) -> Iterator[tuple[int, list[tuple[int, ...]]]]:
        """Yield the buckets of several rounds: name, start, end and whether derived of stages.

        Those whose names are not there have none.
        """
        row = 0
        for line, count in zip(self._timed, self._counts, strict=True):
            for at, one in enumerate(line.rounds(), row):
                if one is not None:
                    took, starts = one
                    own = kinds[kind[at]] if len(kinds[kind[at]]) == len(took) else ()
                    every = zip(own, starts, took, strict=False)
                    yield at, [(STAGES.index(x.name), t, t + ns, x.derived) for x, t, ns in every]
            row += count


def _numbers(records: Sequence[msgspec.Struct], name: str) -> Ints:
    """Return a whole number of each record; ``UNKNOWN`` where it is ``None``."""
    values = _without_none([*map(attrgetter(name), records)], UNKNOWN)
    return np.fromiter(values, np.int64, len(records))


def _without_none(values: Iterable[Any], absent: int) -> list[Any]:
    return [absent if one is None else one for one in values]
