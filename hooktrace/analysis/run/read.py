"""Record files to columns, a block of lines at a time.

    file --blocks--> some 1,000 lines --RecordReader, one call of msgspec--> lines
        --astuple, numpy.fromiter--> rows of numbers --ColumnBuilder.track--> RankTrack

A device bucket is put where its step's first bucket became ready on the host, plus its device
times; that of a step that was cut off and has no line, where its own hook was called.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from itertools import accumulate
from operator import attrgetter
from typing import Any

import msgspec
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

    def __getitem__(self, name: str) -> Ints:
        blocks = self._blocks.get(name) or [np.zeros(0, np.int64)]
        self._blocks[name] = blocks = [np.concatenate(blocks)] if len(blocks) > 1 else blocks
        return blocks[0]

    def columns(self, names: Iterable[str]) -> dict[str, Ints]:
        """Return columns as they stay; what is added to large numbers is not ``packed``."""
        return {name: self[name] if name in _LARGE else packed(self[name]) for name in names}


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

    def _take_buckets(self, lines: Sequence[BucketLine], shared: Shared) -> None:
        """Add buckets.  What raises does so before anything is added: no half row stays behind."""
        if self._every > 1:
            lines = [line for line in lines if line.step % self._every == 0]
        if not lines:
            return
        own = _Fields(lines)
        timed: Sequence[StageTimes] = lines
        times, on_device = own, np.array([one is not None for one in own["device"]])
        if on_device.any():
            timed = [line.device or line for line in lines]
            times = _Fields(timed, ("ready_ns", "done_ns", *StageTimes.__struct_fields__))
        said = list(zip(own["model"], own["shared"], strict=True))
        kinds = {one: i for i, one in enumerate(dict.fromkeys(said))}
        kind = _ints(map(kinds.__getitem__, said), len(said))
        common = [shared.get(number, UNKNOWN_LINE) for _, number in kinds]
        stages, count = _stage_rows(
            timed, times, kind, [one.device_stages or one.stages for one in common]
        )
        exceptions = own.few("exception", self._count)
        flags = _flags(own, ("shadow", "warmup", "probed")) | on_device * FLAGS["device"]
        flags[[row - self._count for row in exceptions]] |= FLAGS["exception"]
        facts = [
            self._facts_of(model, one.facts) for (model, _), one in zip(kinds, common, strict=True)
        ]
        sent = own.maybe("wire_bytes")
        per_byte = np.array([one.bus_per_byte for one in common], np.float64)[kind]
        self._buckets.add(
            own.columns(_BUCKETS, _MAYBE_OF_BUCKETS)
            | {
                "wire_bytes": sent,
                "bus_bytes": _bus_bytes(own.maybe("bus_bytes"), sent, per_byte),
                "ready": times.whole("ready_ns"),
                "done": times.whole("done_ns"),
                "stages": count,
                "facts": np.array(facts)[kind],
                "flags": flags,
            }
        )
        self._stages.add(stages)
        self._errors |= own.few("error", self._count)
        self._exceptions |= exceptions
        self._count += len(lines)

    def _facts_of(self, model: str, facts: BucketFacts) -> int:
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
        if not steps:
            return
        own = _Fields(steps)
        kept = np.array([_KEPT.get(one, 0) for one in own["kept_for"]])
        has_detail = own.whole("detail_kept") != 0
        if self._every > 1:
            kept |= (has_detail & (kept == 0)) * FLAGS["kept_by_window"]
            has_detail &= own.whole("step") % self._every == 0
            kept *= own.whole("step") % self._every == 0
        flags = kept | _flags(own, ("shadow", "warmup", "probed", "sharded"))
        flags |= (own.whole("complete") == 0) * FLAGS["incomplete"]
        flags |= ~has_detail * FLAGS["detail_left_out"]
        flags |= np.array([clock == "device" for clock in own["clock"]]) * FLAGS["device"]
        names = zip(own["model"], own["hook"], strict=True)
        model = _ints((self._model(*one) for one in names), len(steps))
        self._steps.add(own.columns(_STEPS, _MAYBE_OF_STEPS) | {"model": model, "flags": flags})
        self._unknown_bytes.update((x.model, x.sent_unknown) for x in steps if x.sent_unknown)

    def track(self, records: RankRecords, paths: Sequence[str | os.PathLike[str]]) -> RankTrack:
        """Return what was read; ``records``: what the readers of ``paths`` hold beside it."""
        self._add_steps()
        steps = StepColumns(**self._steps.columns(("model", "flags", *_STEPS, *_MAYBE_OF_STEPS)))
        stages = self._stages
        return RankTrack(
            models=list(self._models),
            facts=[facts for _, facts in self._facts],
            buckets=self._bucket_columns(steps),
            stages=StageColumns(
                name=stages["name"].astype(np.int8),
                derived=stages["derived"].astype(bool),
                **stages.columns(("start", "end")),
            ),
            steps=steps,
            errors=dict(self._errors),
            exceptions=dict(self._exceptions),
            unknown_bytes=self._unknown_bytes.copy(),
            records=records,
            paths=[os.fspath(path) for path in paths],
        )

    def _bucket_columns(self, steps: StepColumns) -> BucketColumns:
        """Return the buckets; steps whose buckets are there after all are told so."""
        found, facts, called = self._buckets, self._buckets["facts"], self._buckets["called"]
        on_device = (found["flags"] & FLAGS["device"]) != 0

        def of_facts(value: Callable[[BucketFacts], int]) -> Ints:
            return np.array([value(one) for _, one in self._facts], np.int64)[facts]

        ids = [self._models[model, one.hook] for model, one in self._facts]
        model = np.array(ids, np.int64)[facts]
        of_step = steps.rows_of(model, found["step"])
        # The step after them was slow: its buckets, and those before it, came then.
        steps.flags[of_step[of_step != UNKNOWN]] &= ~FLAGS["detail_left_out"]
        first = np.append(steps.first_ready, 0)[of_step]
        # Host times of a line begin with a time of day, a device's with its step.
        begin = np.where(on_device, np.where(of_step == UNKNOWN, 0, first - called), -called)
        flags = found["flags"] | of_facts(
            lambda one: one.is_last * FLAGS["is_last"] | (one.unit is not None) * FLAGS["sharded"]
        )
        untimed = of_facts(lambda one: (one.device_type != "cpu") * FLAGS["untimed"])
        return BucketColumns(
            model=packed(model),
            flags=packed(flags | untimed * ~on_device),
            gradient_bytes=packed(of_facts(lambda one: one.gradient_bytes)),
            ready_after=packed(found["ready"] + begin),
            done_after=packed(found["done"] + np.where(on_device, begin, 0)),
            **found.columns(
                ("wire_bytes", "bus_bytes", "stages", "facts", *_BUCKETS, *_MAYBE_OF_BUCKETS)
            ),
        )


_BUCKETS = {"step": "step", "generation": "generation", "called": "ready_ns"} | {
    one.name: one.metadata["line"] for one in fields(BucketColumns) if "line" in one.metadata
}
_MAYBE_OF_BUCKETS = {
    one.name: one.metadata["maybe"] for one in fields(BucketColumns) if "maybe" in one.metadata
}
_STEPS = {name: name for name in ("step", "generation", "gradient_bytes", "bucket_count")} | {
    name: f"{name}_ns" for name in ("first_ready", "last_ready", "done")
}
_MAYBE_OF_STEPS = {name: name for name in ("wire_bytes", "bus_bytes")} | {
    name: f"{name}_ns" for name in ("busy", "exposed", "wire_busy", "previous_period")
}
"""Columns, each with the field of the lines that it is of; ``_MAYBE...`` of those that may be
``None``."""
_WORTH_ARRAYS = 1000
_LARGE = {"step", "first_ready", "last_ready", "done", "called"}
_KEPT: dict[str | None, int] = {"window": FLAGS["kept_by_window"], "first": FLAGS["kept_as_first"]}
_MOST = 1 << 62
"""Of the bytes of a bus, which are a product."""
_STAGE_IDS = {name: index for index, name in enumerate(STAGE_NAMES)}


class _Fields:
    """The fields of many records, each as a tuple; ``names``: of records of several kinds."""

    def __init__(self, records: Sequence[msgspec.Struct], names: Sequence[str] = ()) -> None:
        rows = map(attrgetter(*names) if names else msgspec.structs.astuple, records)
        columns = zip(*rows, strict=True)
        self._values = dict(zip(names or records[0].__struct_fields__, columns, strict=True))
        self._count = len(records)

    def __getitem__(self, name: str) -> tuple[Any, ...]:
        return self._values[name]

    def is_absent(self, name: str) -> bool:
        """Return whether no record has the field, which is ``None`` then."""
        return self._values[name].count(None) == self._count

    def whole(self, name: str) -> Ints:
        """Return a whole number of each record."""
        return _ints(self._values[name], self._count)

    def maybe(self, name: str) -> Ints:
        """Return a number of each record, to 53 bits; ``UNKNOWN`` where it is ``None``."""
        if self.is_absent(name):
            return np.full(self._count, UNKNOWN)
        values = np.array(self[name], np.float64)
        values[np.isnan(values)] = UNKNOWN
        return values.astype(np.int64)

    def columns(self, whole: dict[str, str], maybe: dict[str, str]) -> dict[str, Ints]:
        """Return columns, each of the field that it is of."""
        found = {column: self.whole(name) for column, name in whole.items()}
        return found | {column: self.maybe(name) for column, name in maybe.items()}

    def few(self, name: str, first_row: int) -> dict[int, Any]:
        """Return what few records have, by row."""
        if self.is_absent(name):
            return {}
        values = enumerate(self._values[name], first_row)
        return {row: one for row, one in values if one is not None}


def _flags(own: _Fields, names: Sequence[str]) -> Ints:
    found: Ints = np.sum([own.whole(name) * FLAGS[name] for name in names], axis=0)
    return found


def _stage_rows(
    timed: Sequence[StageTimes], times: _Fields, kind: Ints, kinds: Sequence[Sequence[StageKind]]
) -> tuple[dict[str, Ints], Ints]:
    """Return columns of all stages of some lines, and how many each line has.

    ``kind``: of each line, what its stages are, in ``kinds``.  Raises ``ValueError`` for stages
    that are not as many as their beginnings.
    """
    # Of each line a row of all stages that occur, in order; most lines have the same three.
    occur = [i for i, name in enumerate(STAGE_COLUMNS) if not times.is_absent(name)]
    took = np.array([times[STAGE_COLUMNS[i]] for i in occur], np.float64)
    took = took.reshape(len(occur), len(timed)).T
    is_there = ~np.isnan(took)
    both = zip(times["stage_ns"], times["stage_starts_ns"], strict=True)
    one_by_one = [row for row, (ns, starts) in enumerate(both) if ns or starts]
    is_there[one_by_one] = False
    ends = np.where(is_there, took, 0).cumsum(axis=1)
    row, place = np.nonzero(is_there)
    name = np.array(occur, np.int64)[place]
    end, length = ends[is_there], took[is_there]
    is_derived = np.zeros((len(kinds), len(STAGE_NAMES)), bool)
    for i, stages in enumerate(kinds):
        is_derived[i, [_STAGE_IDS[one.name] for one in stages if one.derived]] = True
    found = np.array([row, name, end - length, end, is_derived[kind[row], name]]).astype(np.int64)
    if one_by_one:
        more = [one for row in one_by_one for one in _one_by_one(row, timed[row], kinds[kind[row]])]
        found = np.concatenate([found, np.array(more, np.int64).reshape(-1, len(found)).T], axis=1)
        found = found[:, np.argsort(found[0], kind="stable")]
    columns = dict(zip(("name", "start", "end", "derived"), found[1:], strict=True))
    return columns, np.bincount(found[0], minlength=len(timed))


def _one_by_one(
    row: int, line: StageTimes, kinds: Sequence[StageKind]
) -> Iterator[tuple[int, ...]]:
    """Yield row, name, start, end and whether derived of stages, if their names are there."""
    line.check()
    if len(kinds) != len(line.stage_ns):
        return
    starts = line.stage_starts_ns or (0, *accumulate(line.stage_ns))
    for kind, start, took in zip(kinds, starts, line.stage_ns, strict=False):
        yield row, _STAGE_IDS[kind.name], start, start + took, kind.derived


def _ints(values: Iterable[int], count: int) -> Ints:
    return np.fromiter(values, np.int64, count)


def _bus_bytes(given: Ints, sent: Ints, per_byte: np.ndarray[Any, Any]) -> Ints:
    """Return the bytes on the bus, which many lines leave to what they share."""
    is_left = (given == UNKNOWN) & (sent != UNKNOWN) & ~np.isnan(per_byte)
    product = np.minimum(sent * np.nan_to_num(per_byte), _MOST).astype(np.int64)
    return np.where(is_left, product, given)
