"""What stands in a record file and nowhere else: three kinds of line, as they are read.

All other lines are the records themselves.  The buckets of a step are a line of columns, each with
a value for each bucket, so that a bucket takes few bytes and any engine can ask for a column.  What
many calls have in common (the bucket's facts, their stages' collectives and dtypes) stands once, in
a line of its own, whose number theirs name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, groupby, pairwise, repeat
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
    names = dict.fromkeys(chain.from_iterable(rows))
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
        sizes = [call_bytes if sends_all else None for sends_all in _sending(kinds)]
    starts = row.get("stage_starts_ns") or (0, *accumulate(took))
    return tuple(
        Stage(
            start_ns=zero_ns + start, end_ns=zero_ns + start + ns, wire_bytes=size,
            name=kind.name, derived=kind.derived, collective=kind.collective, dtype=kind.dtype,
        )
        for kind, start, ns, size in zip(kinds, starts, took, sizes, strict=False)
    )  # fmt: skip


def _sending(kinds: Sequence[StageKind]) -> tuple[bool, ...]:
    """Return which stage sends all that its call does: the only one with a collective."""
    sending = tuple(kind.collective is not None for kind in kinds)
    return sending if sending.count(True) == 1 else (False,) * len(kinds)


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
_KIND = attrgetter(*StageKind.__struct_fields__)
_MOST_SHARED = 4096
"""That are remembered; a hook may send in ever new ways."""


class _Stages(NamedTuple):
    """The columns of a call's stages where these are in order, and which one sends all."""

    columns: tuple[str, ...] | None
    sending: tuple[bool, ...]


class _Known(NamedTuple):
    """What a shared line says: its number, the ratio, and of its stages."""

    number: int
    bus_per_byte: float | None
    stages: _Stages
    device_stages: _Stages


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
        both = [(record, self._known_of(record, found)) for record in records]
        for of_line, group in groupby(both, lambda one: (_LINE(one[0]), one[0].device is None)):
            calls, known = zip(*group, strict=True)
            found.append(
                BucketsLine(
                    **dict(zip(_OF_LINE, of_line[0], strict=True)),
                    calls=_calls(calls, known),
                    device=_spans(calls, known),
                )
            )
        return found

    def _known_of(self, record: BucketRecord, lines: list[SharedLine | BucketsLine]) -> _Known:
        """Return what is known of what a call shares; say it in ``lines`` if none has."""
        device, per_byte = record.device, _bus_per_byte(record.wire_bytes, record.bus_bytes)
        on_device = () if device is None else tuple(map(_KIND, device.stages))
        shared = _FACTS(record), per_byte, tuple(map(_KIND, record.stages)), on_device
        return self._known.get(shared) or self._say(shared, lines)

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
        known = _Known(self._number, per_byte, _stages_of(stages), _stages_of(on_device))
        self._known[shared] = known
        return known


def _calls(calls: Sequence[BucketRecord], known: Sequence[_Known]) -> CallColumns:
    pairs = list(zip(calls, known, strict=True))
    rare = {name: [getattr(call, name) for call in calls] for name in _OF_BUCKET}
    rare["bus_bytes"] = [c.bus_bytes if one.bus_per_byte is None else None for c, one in pairs]
    times = [_times(c.stages, c.ready_ns, c.wire_bytes, one.stages) for c, one in pairs]
    return CallColumns(
        bucket=[call.bucket for call in calls],
        shared=[one.number for one in known],
        ready_ns=[call.ready_ns for call in calls],
        launched_ns=[call.launched_ns - call.ready_ns for call in calls],
        done_ns=[call.done_ns - call.ready_ns for call in calls],
        **{name: values for name, values in rare.items() if values.count(None) < len(values)},
        **_columns_of(times),
    )


def _spans(calls: Sequence[BucketRecord], known: Sequence[_Known]) -> DeviceColumns | None:
    """Return the columns of the device's times, ``None`` of calls that have none."""
    times: list[_Row] = []
    spans: list[DeviceSpan] = []
    for call, one in zip(calls, known, strict=True):
        if (span := call.device) is not None:
            spans.append(span)
            usual = one.device_stages
            times.append(_times(span.stages, span.ready_ns, call.wire_bytes, usual))
    if not spans:
        return None
    return DeviceColumns(
        ready_ns=[span.ready_ns for span in spans],
        done_ns=[span.done_ns for span in spans],
        **_columns_of(times),
    )


def _bus_per_byte(wire_bytes: int | None, bus_bytes: float | None) -> float | None:
    """Return the ratio of a call's bytes where it gives these back."""
    if bus_bytes is None or not wire_bytes:
        return None
    ratio = bus_bytes / wire_bytes
    return ratio if wire_bytes * ratio == bus_bytes and ratio <= _MOST_PER_BYTE else None


def _stages_of(kinds: Sequence[StageKind]) -> _Stages:
    in_order = all(_NAMES.index(a.name) < _NAMES.index(b.name) for a, b in pairwise(kinds))
    columns = tuple(_COLUMN_OF[kind.name] for kind in kinds)
    return _Stages(columns if in_order else None, _sending(kinds))


def _times(
    stages: tuple[Stage, ...], zero_ns: int, call_bytes: int | None, usual: _Stages
) -> dict[str, Any]:
    """Return the values of ``Columns``; ``call_bytes``: what all of the call sends."""
    took, end = [], zero_ns
    is_gapless = sends_as_usual = True
    for stage, sends_all in zip(stages, usual.sending, strict=True):
        start = stage.start_ns
        is_gapless &= start == end
        end = stage.end_ns
        took.append(end - start)
        sends_as_usual &= stage.wire_bytes == (call_bytes if sends_all else None)
    if is_gapless and usual.columns is not None:
        times: dict[str, Any] = dict(zip(usual.columns, took, strict=True))
    else:
        times = {"stage_ns": tuple(took)}
        for stage, ns in zip(stages, took, strict=True):
            column = _COLUMN_OF[stage.name]
            times[column] = times.get(column, 0) + ns
        if not is_gapless:
            times["stage_starts_ns"] = tuple(stage.start_ns - zero_ns for stage in stages)
    if not sends_as_usual:
        times["stage_wire_bytes"] = tuple(stage.wire_bytes for stage in stages)
    return times
