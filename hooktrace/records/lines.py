"""What stands in a record file and nowhere else: three kinds of line, as they are read.

All other lines are the records themselves.  The buckets of a step are a line of columns, each with
a value for each bucket, so that a bucket takes few bytes and any engine can ask for a column.  What
many calls have in common (the bucket's facts, their stages' collectives and dtypes) stands once, in
a line of its own, whose number theirs name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise, repeat
from operator import attrgetter
from typing import Annotated, Any, NamedTuple, get_args

import msgspec
from msgspec import Meta
from msgspec.structs import asdict, astuple

from .base import BucketIndex, BusBytes, Count, Ns, Record, Step
from .bucket import (
    BucketFacts,
    BucketRecord,
    DeviceSpan,
    Stage,
    StageKind,
    StageName,
    Transfer,
)
from .compression_error import ErrorRecord


class Losses(Record, frozen=True, kw_only=True, tag="losses"):
    """What is not in the files so far, by kind of record; ``closed``: the part was ended in order.

    ``lost``: could not be written.  ``left_out``: by the writer's retention.  ``removed``: with
    older parts.
    """

    lost: dict[str, Count] = msgspec.field(default_factory=dict)
    left_out: dict[str, Count] = msgspec.field(default_factory=dict)
    removed: dict[str, Count] = msgspec.field(default_factory=dict)
    closed: bool = False


_MOST_PER_BYTE = 1e6


class SharedLine(Record, frozen=True, kw_only=True, tag="shared"):
    """What many calls share; buckets name it by its ``number``, which it has in this file alone.

    ``stages``: in the order in which they begin; ``device_stages``: those on the device.
    ``bus_per_byte``: ``bus_bytes`` of a call over its ``wire_bytes``.
    """

    number: Count
    facts: BucketFacts
    stages: tuple[StageKind, ...] = ()
    device_stages: tuple[StageKind, ...] = ()
    bus_per_byte: Annotated[float, Meta(ge=0, le=_MOST_PER_BYTE)] | None = None


Shared = Mapping[int, SharedLine]
"""A file's, by their numbers."""

UNKNOWN = SharedLine(
    number=0,
    facts=BucketFacts(
        hook="unknown", is_last=False, dtype="unknown", device_type="cpu", numel=0,
        gradient_bytes=0, parameter_count=0,
    ),
)  # fmt: skip
"""What is known where the line is damaged."""

_Length = Annotated[int, Meta(ge=-(1 << 50), le=1 << 50)]
_Sum = Annotated[int, Meta(ge=-(1 << 59), le=1 << 59)]
_MOST_STAGES = Meta(max_length=1 << 9)
"""Of a call, whose times then add up in 64 bits."""

_Sums = list[_Sum | None]
_Row = Mapping[str, Any]
"""What a line says of one bucket, by column, as far as it has it."""


class Columns(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Columns with a value for each of a line's buckets; one that no bucket has is left out.

    ``..._ns``: how long the stages of a call took, by name: the sum of several of one name.  Each
    begins when the one before it ended, in the order of ``STAGES``, the first when the bucket was
    ready.  Where that is not so, as of several rounds, ``stage_ns`` are the lengths one by one, and
    ``stage_starts_ns`` their beginnings where there are gaps; the shared line has the names then.
    ``stage_wire_bytes``: what each stage sent, left out where one sends all that the call does.
    """

    check_ns: _Sums = []
    serialization_wait_ns: _Sums = []
    compress_ns: _Sums = []
    queue_ns: _Sums = []
    wire_ns: _Sums = []
    decompress_ns: _Sums = []
    hook_ns: _Sums = []
    future_wait_ns: _Sums = []
    stage_ns: list[Annotated[tuple[_Length, ...], _MOST_STAGES] | None] = []
    stage_starts_ns: list[Annotated[tuple[Ns, ...], _MOST_STAGES] | None] = []
    stage_wire_bytes: list[Annotated[tuple[Count | None, ...], _MOST_STAGES] | None] = []

    def check(self, count: int) -> None:
        """Raise ``ValueError`` for columns that do not have so many values, or odd stages."""
        lengths = {*map(len, astuple(self))}
        if not lengths <= {0, count}:
            raise ValueError(f"the columns of {count} buckets have {sorted(lengths)} values")
        if len(self.stage_starts_ns) > len(self.stage_ns):
            raise ValueError("stages have beginnings and no lengths")
        for took, starts in zip(self.stage_ns, self.stage_starts_ns, strict=False):
            if starts is not None and len(starts) != len(took or ()):
                raise ValueError(f"{len(took or ())} stages have {len(starts)} beginnings")

    def rounds(self) -> Iterator[tuple[Sequence[int], Sequence[int]] | None]:
        """Yield lengths and beginnings of a bucket's stages, if these are listed one by one."""
        starts = self.stage_starts_ns or [None] * len(self.stage_ns)
        for took, begun in zip(self.stage_ns, starts, strict=True):
            yield None if took is None else (took, begun or (0, *accumulate(took)))

    def rows(self) -> Iterator[_Row]:
        """Yield each bucket's values, without those that it does not have."""
        columns = {name: values for name, values in asdict(self).items() if values}
        for values in zip(*columns.values(), strict=True):
            row = zip(columns, values, strict=True)
            yield {name: one for name, one in row if one is not None}


def _columns_of(rows: Sequence[_Row]) -> dict[str, Any]:
    """Return the columns of these rows."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def _stages(
    row: _Row, zero_ns: int, kinds: tuple[StageKind, ...], call_bytes: int | None
) -> tuple[Stage, ...]:
    """Return the stages; none of several rounds where the line with their names is damaged.

    ``zero_ns``: when the first began.  ``call_bytes``: what all of the call sends.
    """
    names = tuple(kind.name for kind in kinds)
    took: Sequence[int] = row.get("stage_ns", ())
    if took and len(took) != len(names):
        return ()
    if not took:
        known = [(name, row[column]) for name, column in _COLUMN_OF.items() if column in row]
        took = [ns for _, ns in known]
        if names != (names := tuple(name for name, _ in known)):
            kinds = tuple(StageKind(name=name) for name in names)
    sizes: Sequence[int | None] = row.get("stage_wire_bytes", ())
    if len(sizes) != len(kinds):
        sizes = _sent_by_one(kinds, call_bytes)
    starts = row.get("stage_starts_ns") or (0, *accumulate(took))
    return tuple(
        Stage(
            start_ns=zero_ns + start, end_ns=zero_ns + start + ns, wire_bytes=size,
            name=kind.name, derived=kind.derived, collective=kind.collective, dtype=kind.dtype,
        )
        for kind, start, ns, size in zip(kinds, starts, took, sizes, strict=False)
    )  # fmt: skip


def _sent_by_one(kinds: Sequence[StageKind], call_bytes: int | None) -> list[int | None]:
    """Return what each stage sent if the only one with a collective sent all."""
    sending = [kind.collective is not None for kind in kinds]
    size = call_bytes if sending.count(True) == 1 else None
    return [size if is_sending else None for is_sending in sending]


_NAMES: tuple[StageName, ...] = get_args(StageName)
_COLUMN_OF = {name: f"{name}_ns" for name in _NAMES}
STAGE_COLUMNS = tuple(_COLUMN_OF.values())
"""The fields of ``Columns`` that are a stage's."""


class DeviceColumns(Columns, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The times of buckets on their device as they stand in a file."""

    ready_ns: list[Ns]
    done_ns: list[Ns]


class CallColumns(
    Columns,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    gc=False,
    rename={"launched_ns": "launch_ns", "done_ns": "duration_ns"},
):
    """Buckets of one step as they stand in a file; what is not said here is as in ``BucketRecord``.

    ``launched_ns`` and ``done_ns`` are ns after ``ready_ns``, and called so.  ``shared``: the
    number of the line that says the rest, ``bus_bytes`` too where it can.
    """

    bucket: list[BucketIndex]
    shared: list[Count]
    ready_ns: list[Ns]
    launched_ns: list[Ns]
    done_ns: list[Ns]
    wire_bytes: list[Count | None] = []
    bus_bytes: list[BusBytes | None] = []
    exposed_ns: list[Ns | None] = []
    exception: list[str | None] = []
    error: list[ErrorRecord | None] = []
    sent: list[tuple[Transfer, ...] | None] = []


class BucketsLine(Record, frozen=True, kw_only=True, tag="buckets"):
    """Buckets of one step; those that differ in what is no column are in another line."""

    model: str
    rebuild: Count
    step: Step
    join_dummy: bool = False
    warmup: bool = False
    checked: bool = False
    bounded: bool = False
    calls: CallColumns
    device: DeviceColumns | None = None

    def __len__(self) -> int:
        return len(self.calls.bucket)

    def check(self) -> None:
        """Raise ``ValueError`` for columns of another length than the line's others."""
        calls, device = self.calls, self.device
        needed = [calls.shared, calls.ready_ns, calls.launched_ns, calls.done_ns]
        calls.check(len(self))
        if device is not None:
            device.check(len(self))
            needed += [device.ready_ns, device.done_ns]
        if len(self) and not all(needed):
            raise ValueError(f"a column that all of {len(self)} buckets have is empty")

    def records(self, shared: Shared) -> Iterator[BucketRecord]:
        """Yield the records."""
        of_line: dict[str, Any] = {name: getattr(self, name) for name in _OF_LINE}
        device = self.device
        spans: Iterable[_Row | None] = repeat(None) if device is None else device.rows()
        for row, span in zip(self.calls.rows(), spans, strict=False):
            common = shared.get(row["shared"], UNKNOWN)
            ready_ns, sent = row["ready_ns"], row.get("wire_bytes")
            bus = row.get("bus_bytes")
            if bus is None and sent is not None and common.bus_per_byte is not None:
                bus = sent * common.bus_per_byte
            yield BucketRecord(
                **asdict(common.facts),
                **(of_line | {name: row.get(name) for name in _OF_BUCKET}),
                bucket=row["bucket"],
                ready_ns=ready_ns,
                launched_ns=ready_ns + row["launched_ns"],
                done_ns=ready_ns + row["done_ns"],
                stages=_stages(row, ready_ns, common.stages, sent),
                device=None if span is None else _span(span, common.device_stages, sent),
                bus_bytes=bus,
            )


def _span(row: _Row, kinds: tuple[StageKind, ...], call_bytes: int | None) -> DeviceSpan:
    ready_ns = row["ready_ns"]
    stages = _stages(row, ready_ns, kinds, call_bytes)
    return DeviceSpan(ready_ns=ready_ns, done_ns=row["done_ns"], stages=stages)


_FACTS = attrgetter(*BucketFacts.__struct_fields__)
_OF_LINE = ("model", "rebuild", "step", "join_dummy", "warmup", "checked", "bounded")
_OF_BUCKET = ("wire_bytes", "exposed_ns", "exception", "error", "sent")
_LINE = attrgetter(*_OF_LINE)
_RARE_NAMES = _OF_BUCKET[1:]
_RARE = attrgetter(*_RARE_NAMES)
_NONE_OF_THEM = (None,) * len(_RARE_NAMES)
_KIND = attrgetter(*StageKind.__struct_fields__)
_MOST_SHARED = 4096
"""That are remembered; a hook may send in ever new ways."""


class _Known(NamedTuple):
    """A shared line's number, and the columns of its stages where these are in order."""

    number: int
    columns: tuple[str, ...] | None
    device_columns: tuple[str, ...] | None


class BucketWriter:
    """Makes the lines of one file's buckets, and says once what they share."""

    def __init__(self) -> None:
        self._known: dict[object, _Known] = {}
        self._number = 0

    def forget(self) -> None:
        """Take it that nothing stands in the file; numbers go on, since something may."""
        self._known.clear()

    def lines(self, records: Iterable[BucketRecord]) -> list[SharedLine | BucketsLine]:
        """Return the lines of buckets; before them stands what they share and none has said yet."""
        found: list[SharedLine | BucketsLine] = []
        lines: list[tuple[object, BucketRecord, list[_Row], list[_Row]]] = []
        for record in records:
            device, ready_ns, sent = record.device, record.ready_ns, record.wire_bytes
            kinds = tuple(map(_KIND, record.stages))
            on_device = () if device is None else tuple(map(_KIND, device.stages))
            per_byte = _bus_per_byte(sent, record.bus_bytes)
            shared = _FACTS(record), per_byte, kinds, on_device
            known = self._known.get(shared)
            if known is None:
                known = self._say(shared, found)
            row = {
                "bucket": record.bucket,
                "shared": known.number,
                "ready_ns": ready_ns,
                "launched_ns": record.launched_ns - ready_ns,
                "done_ns": record.done_ns - ready_ns,
                **_times(record.stages, ready_ns, sent, known.columns),
            }
            if sent is not None:
                row["wire_bytes"] = sent
            if per_byte is None and record.bus_bytes is not None:
                row["bus_bytes"] = record.bus_bytes
            if (rare := _RARE(record)) != _NONE_OF_THEM:
                row |= {n: x for n, x in zip(_RARE_NAMES, rare, strict=True) if x is not None}
            whose = *_LINE(record), device is None
            if not lines or lines[-1][0] != whose:
                lines.append((whose, record, [], []))
            lines[-1][2].append(row)
            if device is not None:
                times = _times(device.stages, device.ready_ns, sent, known.device_columns)
                lines[-1][3].append(
                    {"ready_ns": device.ready_ns, "done_ns": device.done_ns, **times}
                )
        for _, first, rows, spans in lines:
            of_line: dict[str, Any] = dict(zip(_OF_LINE, _LINE(first), strict=True))
            device_columns = DeviceColumns(**_columns_of(spans)) if spans else None
            calls = CallColumns(**_columns_of(rows))
            found.append(BucketsLine(**of_line, calls=calls, device=device_columns))
        return found

    def _say(self, shared: tuple[Any, ...], lines: list[SharedLine | BucketsLine]) -> _Known:
        facts, per_byte, *both = shared
        if len(self._known) >= _MOST_SHARED:
            self._known.clear()
        self._number += 1
        fields = StageKind.__struct_fields__
        stages, on_device = (
            tuple(StageKind(**dict(zip(fields, kind, strict=True))) for kind in kinds)
            for kinds in both
        )
        of_bucket = BucketFacts(**dict(zip(BucketFacts.__struct_fields__, facts, strict=True)))
        lines.append(
            SharedLine(
                number=self._number, facts=of_bucket, stages=stages, device_stages=on_device,
                bus_per_byte=per_byte,
            )
        )  # fmt: skip
        known = _Known(self._number, _columns(stages), _columns(on_device))
        self._known[shared] = known
        return known


def _bus_per_byte(wire_bytes: int | None, bus_bytes: float | None) -> float | None:
    """Return the ratio of a call's bytes where it gives these back."""
    if bus_bytes is None or not wire_bytes:
        return None
    ratio = bus_bytes / wire_bytes
    return ratio if wire_bytes * ratio == bus_bytes and ratio <= _MOST_PER_BYTE else None


def _columns(kinds: Sequence[StageKind]) -> tuple[str, ...] | None:
    """Return the columns of stages that come in the order of ``STAGES``."""
    in_order = all(_NAMES.index(a.name) < _NAMES.index(b.name) for a, b in pairwise(kinds))
    return tuple(_COLUMN_OF[kind.name] for kind in kinds) if in_order else None


def _times(
    stages: tuple[Stage, ...],
    zero_ns: int,
    call_bytes: int | None,
    columns: tuple[str, ...] | None,
) -> dict[str, Any]:
    """Return the values of ``Columns``; ``call_bytes``: what all of the call sends."""
    took, end, is_gapless = [], zero_ns, True
    for stage in stages:
        start = stage.start_ns
        is_gapless &= start == end
        end = stage.end_ns
        took.append(end - start)
    if is_gapless and columns is not None:
        times: dict[str, Any] = dict(zip(columns, took, strict=True))
    else:
        times = {"stage_ns": tuple(took)}
        for stage, ns in zip(stages, took, strict=True):
            column = _COLUMN_OF[stage.name]
            times[column] = times.get(column, 0) + ns
        if not is_gapless:
            times["stage_starts_ns"] = tuple(stage.start_ns - zero_ns for stage in stages)
    sizes = [stage.wire_bytes for stage in stages]
    if sizes != _sent_by_one(stages, call_bytes):
        times["stage_wire_bytes"] = tuple(sizes)
    return times
