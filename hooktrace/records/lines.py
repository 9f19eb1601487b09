"""What stands in a record file and nowhere else: four kinds of line, as they are read.

All other lines are the records themselves.  A bucket's line leaves out what the layout of its
generation says, and counts times from the moment the bucket was ready.  Its stages are columns, so
that any engine can ask for them; what they have in common with those of other calls (collectives,
dtypes, bytes) stands in a line of its own, once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from operator import attrgetter
from typing import Annotated, Any, NamedTuple, get_args

import msgspec
from msgspec import Meta
from msgspec.structs import asdict, replace

from .base import BucketIndex, BusBytes, Count, Ns, Record, Step
from .bucket import (
    STAGES,
    BucketRecord,
    CallFields,
    DeviceSpan,
    LayoutRecord,
    Members,
    Stage,
    StageName,
    Transfer,
    Unit,
)
from .compression_error import ErrorRecord
from .run import SCHEMA_VERSION, RunInfo


class RunLine(RunInfo, frozen=True, kw_only=True, tag_field="kind", tag="run"):
    """The first line of a file: the run, and the version of the records that follow."""

    schema: Count

    @classmethod
    def of(cls, run: RunInfo) -> RunLine:
        """Return the line of a run."""
        return cls(schema=SCHEMA_VERSION, **asdict(run))

    def record(self) -> RunInfo:
        """Return the run."""
        return RunInfo(**{name: getattr(self, name) for name in RunInfo.__struct_fields__})


class Losses(Record, frozen=True, kw_only=True, tag="losses"):
    """What is not in the files so far, by kind of record; ``closed``: the part was ended in order.

    ``lost``: could not be written.  ``left_out``: by the writer's retention.  ``removed``: with
    older parts.
    """

    lost: dict[str, Count] = msgspec.field(default_factory=dict)
    left_out: dict[str, Count] = msgspec.field(default_factory=dict)
    removed: dict[str, Count] = msgspec.field(default_factory=dict)
    closed: bool = False


class BucketFacts(NamedTuple):
    """What a layout says of each of its buckets' calls; the fields are ``BucketRecord``'s."""

    hook: str
    is_last: bool
    dtype: str
    device_type: str
    numel: int
    gradient_bytes: int
    parameter_count: int
    unit: Unit | None = None
    members: Members | None = None


UNKNOWN_FACTS = BucketFacts("unknown", False, "unknown", "cpu", 0, 0, 0)


def layout_facts(layout: LayoutRecord) -> dict[int, BucketFacts]:
    """Return what a layout says of its buckets, by their index."""
    last = max((bucket.bucket for bucket in layout.buckets), default=-1)
    return {
        b.bucket: BucketFacts(
            hook=layout.hook,
            is_last=b.bucket == last,
            dtype=b.dtype,
            device_type=b.device_type,
            numel=b.numel,
            gradient_bytes=b.gradient_bytes,
            parameter_count=len(b.parameters),
            unit=b.unit,
            members=b.members,
        )
        for b in layout.buckets
    }


class SendsLine(Record, frozen=True, kw_only=True, tag="sends"):
    """What many calls have in common: their stages, a value each, and what a byte is on the bus.

    Buckets name it by its ``number``, which it has in this file alone.  ``stages`` are names, in
    the order in which they begin; ``derived``, ``collective``, ``dtype`` and ``wire_bytes`` are
    ``Stage``'s.  ``wire_bytes`` is left out where one stage sends all that the call does.
    ``bus_per_byte``: ``bus_bytes`` of a call over its ``wire_bytes``.
    """

    number: Count
    stages: tuple[StageName, ...] = ()
    derived: tuple[bool, ...] = ()
    collective: tuple[str | None, ...] = ()
    dtype: tuple[str | None, ...] = ()
    wire_bytes: tuple[Count | None, ...] | None = None
    bus_per_byte: Annotated[float, Meta(ge=0, le=1e6)] | None = None


class Common(NamedTuple):
    """What a ``SendsLine`` says; bytes are -1 where they are all of the call's."""

    stages: tuple[tuple[StageName, bool, str | None, str | None, int | None], ...]
    bus_per_byte: float | None


_Length = Annotated[int, Meta(ge=-(1 << 50), le=1 << 50)]
_Sum = Annotated[int, Meta(ge=-(1 << 59), le=1 << 59)]
_MOST_STAGES = Meta(max_length=1 << 9)
"""Of a call, whose times then add up in 64 bits."""


class StageTimes(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """How long the stages of a call took, by name, ns: the sum of several of one name.

    Each begins when the one before it ended, in the order of ``STAGES``, the first at 0.  Where
    that is not so, as of several rounds, ``stage_ns`` are the lengths one by one, and
    ``stage_starts_ns`` their beginnings where there are gaps; ``sends`` has the names then.
    ``sends``: the number of the line that says the rest, 0 for none.
    """

    probe_ns: _Sum | None = None
    turn_ns: _Sum | None = None
    compress_ns: _Sum | None = None
    queue_ns: _Sum | None = None
    wire_ns: _Sum | None = None
    decompress_ns: _Sum | None = None
    hook_ns: _Sum | None = None
    pending_ns: _Sum | None = None
    stage_ns: Annotated[tuple[_Length, ...], _MOST_STAGES] = ()
    stage_starts_ns: Annotated[tuple[Ns, ...], _MOST_STAGES] = ()
    sends: Count = 0


STAGE_COLUMNS = tuple(f"{name}_ns" for name in STAGES)
"""The fields of ``StageTimes`` that are a stage's."""


class SpanLine(StageTimes, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A bucket's times on its device as they stand in a file; stages are ns after ``ready_ns``."""

    ready_ns: Ns
    done_ns: Ns


class BucketLine(
    StageTimes,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    gc=False,
    tag_field="kind",
    tag="bucket",
    rename={"launched_ns": "launch_ns", "done_ns": "duration_ns"},
):
    """A bucket as it stands in a file; what is not said here is as in ``CallFields``.

    ``launched_ns`` and ``done_ns`` are ns after ``ready_ns``, and called so.  ``bus_bytes`` is left
    out where ``sends`` tells it.  The fields from ``hook`` on are ``BucketRecord``'s: all of them
    where they are not what the layout says, else none.
    """

    model: str
    generation: Count
    step: Step
    bucket: BucketIndex
    ready_ns: Ns
    launched_ns: Ns
    done_ns: Ns
    device: SpanLine | None = None
    wire_bytes: Count | None = None
    bus_bytes: BusBytes | None = None
    shadow: bool = False
    warmup: bool = False
    probed: bool = False
    exception: str | None = None
    error: ErrorRecord | None = None
    sent: tuple[Transfer, ...] | None = None
    exposed_ns: Ns | None = None
    hook: str | None = None
    is_last: bool | None = None
    dtype: str | None = None
    device_type: str | None = None
    numel: Count | None = None
    gradient_bytes: Count | None = None
    parameter_count: Count | None = None
    unit: Unit | None = None
    members: Members | None = None

    @classmethod
    def of(
        cls, record: BucketRecord, layout: BucketFacts | None, stages: StageWriter
    ) -> BucketLine:
        """Return the line of a record; ``layout``: what the file says of the bucket already."""
        own, device, ready_ns = _FACTS(record), record.device, record.ready_ns
        sent, bus = record.wire_bytes, record.bus_bytes
        ratio = bus / sent if bus is not None and sent else None
        if sent is None or ratio is None or sent * ratio != bus or ratio > _MOST_PER_BYTE:
            ratio = None
        line = cls(
            model=record.model,
            generation=record.generation,
            step=record.step,
            bucket=record.bucket,
            ready_ns=ready_ns,
            launched_ns=record.launched_ns - ready_ns,
            done_ns=record.done_ns - ready_ns,
            wire_bytes=sent,
            bus_bytes=bus if ratio is None else None,
            **stages.times(record.stages, ready_ns, sent, ratio),
        )
        if own == layout and _RARE(record) == _NONE_OF_THEM:
            return line  # each further field costs as much as all of these
        span = None
        if device is not None:
            times = stages.times(device.stages, device.ready_ns, sent)
            span = SpanLine(ready_ns=device.ready_ns, done_ns=device.done_ns, **times)
        return replace(
            line,
            device=span,
            shadow=record.shadow,
            warmup=record.warmup,
            probed=record.probed,
            exception=record.exception,
            error=record.error,
            sent=record.sent,
            exposed_ns=record.exposed_ns,
            **(BucketFacts(*own)._asdict() if own != layout else {}),
        )

    def facts(self, layout: BucketFacts | None) -> BucketFacts:
        """Return those of the line itself, else what ``layout`` says, else that all is unknown.

        Raises ``ValueError`` for a line that says some of them.
        """
        if self.hook is None:
            return layout or UNKNOWN_FACTS
        own = BucketFacts(*_FACTS(self))
        if None in own[:-2]:  # of the last, unit and members, it means that there are none
            raise ValueError(f"the field {own._fields[own.index(None)]!r} is missing")
        return own

    def record(self, facts: BucketFacts, sends: Mapping[int, SendsLine]) -> BucketRecord:
        """Return the record; ``facts``: what ``facts()`` gave; ``sends``: the file's, by number.

        Raises ``ValueError`` for stages that are not as many as their times.
        """
        device, ready_ns, sent = self.device, self.ready_ns, self.wire_bytes
        span = None
        if device is not None:
            stages = _stages_of(device, device.ready_ns, sent, sends)
            span = DeviceSpan(ready_ns=device.ready_ns, done_ns=device.done_ns, stages=stages)
        bus, common = self.bus_bytes, sends.get(self.sends)
        if bus is None and sent is not None and common and common.bus_per_byte is not None:
            bus = sent * common.bus_per_byte
        return BucketRecord(
            **{name: getattr(self, name) for name in _AS_THEY_ARE},
            launched_ns=ready_ns + self.launched_ns,
            done_ns=ready_ns + self.done_ns,
            stages=_stages_of(self, ready_ns, sent, sends),
            device=span,
            bus_bytes=bus,
            **facts._asdict(),
        )


_FACTS = attrgetter(*BucketFacts._fields)
_RARE = attrgetter(
    "device", "shadow", "warmup", "probed", "exception", "error", "sent", "exposed_ns"
)
_NONE_OF_THEM = (None, False, False, False, None, None, None, None)
_AS_THEY_ARE = [
    name
    for name in CallFields.__struct_fields__
    if name not in {"launched_ns", "done_ns", "stages", "device", "bus_bytes"}
]
_ALL_OF_THE_CALLS = -1
_MOST_PER_BYTE = 1e6
_PLACES = {name: place for place, name in enumerate(STAGES)}
_NAMES: tuple[StageName, ...] = get_args(StageName)
_COLUMN_OF = dict(zip(_NAMES, STAGE_COLUMNS, strict=True))


class StageWriter:
    """Writes the stages of one file's calls, and what they have in common once, by number.

    ``new``: lines that go before those of the calls that were written last.
    """

    def __init__(self) -> None:
        self._ways: dict[_Way, tuple[_Columns | None, int]] = {}
        self._numbers: dict[Common, int] = {}
        self._number = 0
        self.new: list[SendsLine] = []

    def forget(self) -> None:
        """Take it that nothing that was written stands in the file."""
        self._ways.clear()
        self._numbers.clear()

    def times(
        self,
        stages: tuple[Stage, ...],
        zero_ns: int,
        call_bytes: int | None,
        bus_per_byte: float | None = None,
    ) -> dict[str, Any]:
        """Return the fields of ``StageTimes``; ``call_bytes``: what all of the call sends."""
        way = tuple(map(_OF_STAGE, stages)), call_bytes, bus_per_byte
        columns, number = self._ways.get(way) or self._new_way(*way)
        took, end, is_gapless = [], zero_ns, True
        for s in stages:
            start = s.start_ns
            is_gapless &= start == end
            end = s.end_ns
            took.append(end - start)
        if is_gapless and columns is not None:
            times: dict[str, Any] = dict(zip(columns, took, strict=True))
            if number:
                times["sends"] = number
            return times
        times = {"stage_ns": tuple(took), "sends": number or self._number_of(*way)}
        for s, ns in zip(stages, took, strict=True):
            column = _COLUMN_OF[s.name]
            times[column] = times.get(column, 0) + ns
        if not is_gapless:
            times["stage_starts_ns"] = tuple(s.start_ns - zero_ns for s in stages)
        return times

    def _new_way(
        self, rows: _Rows, call_bytes: int | None, bus_per_byte: float | None
    ) -> tuple[_Columns | None, int]:
        """Return the columns of stages, where they are in order, and the number of the rest."""
        places = [_PLACES[name] for name, *_ in rows]
        columns = None
        if all(a < b for a, b in pairwise(places)):
            columns = tuple(_COLUMN_OF[name] for name, *_ in rows)
        number = 0
        is_plain = all(row[1:] == (False, None, None, None) for row in rows)
        if columns is None or not is_plain or bus_per_byte is not None:
            number = self._number_of(rows, call_bytes, bus_per_byte)
        if len(self._ways) >= _MOST_WAYS:
            self._ways.clear()
        self._ways[rows, call_bytes, bus_per_byte] = columns, number
        return columns, number

    def _number_of(self, rows: _Rows, call_bytes: int | None, bus_per_byte: float | None) -> int:
        sending = [row for row in rows if row[2] is not None]
        others = (row[4] for row in rows if row[2] is None)
        if len(sending) == 1 and sending[0][4] == call_bytes and not any(map(_is_known, others)):
            rows = tuple((*row[:4], _ALL_OF_THE_CALLS) for row in rows)
        common = Common(rows, bus_per_byte)
        number = self._numbers.get(common)
        if number is None:
            if len(self._numbers) >= _MOST_WAYS:
                self.forget()
            self._number = number = self._number + 1
            self._numbers[common] = number
            self.new.append(_sends_line(number, common))
        return number


_Columns = tuple[str, ...]
_Rows = tuple[tuple[StageName, bool, str | None, str | None, int | None], ...]
_Way = tuple[_Rows, int | None, float | None]
_OF_STAGE = attrgetter("name", "derived", "collective", "dtype", "wire_bytes")
_MOST_WAYS = 4096
"""That are remembered; where bytes differ from call to call there are many."""


def _is_known(value: int | None) -> bool:
    return value is not None


def _sends_line(number: int, common: Common) -> SendsLine:
    if not common.stages:
        return SendsLine(number=number, bus_per_byte=common.bus_per_byte)
    stages, derived, collective, dtype, size = zip(*common.stages, strict=True)
    return SendsLine(
        number=number, stages=stages, derived=derived, collective=collective, dtype=dtype,
        wire_bytes=None if _ALL_OF_THE_CALLS in size else size, bus_per_byte=common.bus_per_byte,
    )  # fmt: skip


def check_stages(line: StageTimes) -> None:
    """Raise ``ValueError`` for stages that are not as many as their beginnings."""
    count = len(line.stage_ns)
    if len(line.stage_starts_ns) not in {0, count}:
        raise ValueError(f"{count} stages have {len(line.stage_starts_ns)} beginnings")


def _stages_of(
    line: StageTimes, zero_ns: int, call_bytes: int | None, sends: Mapping[int, SendsLine]
) -> tuple[Stage, ...]:
    """Return the stages; none of several rounds where the line with their names is damaged."""
    common = sends.get(line.sends)
    check_stages(line)
    took: Sequence[int] = line.stage_ns
    if took:
        names = () if common is None or len(common.stages) != len(took) else common.stages
    else:
        known = [(name, getattr(line, column)) for name, column in _COLUMN_OF.items()]
        names = tuple(name for name, ns in known if ns is not None)
        took = [ns for _, ns in known if ns is not None]
    if common is None or common.stages != names or not is_whole(common):
        common = SendsLine(
            number=0, stages=names, derived=(False,) * len(names),
            collective=(None,) * len(names), dtype=(None,) * len(names),
            wire_bytes=(None,) * len(names),
        )  # fmt: skip
    size = common.wire_bytes
    if size is None:
        size = tuple(None if one is None else call_bytes for one in common.collective)
    starts = line.stage_starts_ns or (0, *accumulate(took))
    rows = zip(
        names, starts, took, common.derived, common.collective, size, common.dtype, strict=False
    )
    return tuple(
        Stage(
            name=name, start_ns=zero_ns + start, end_ns=zero_ns + start + ns, derived=derived,
            collective=collective, wire_bytes=sent, dtype=dtype,
        )
        for name, start, ns, derived, collective, sent, dtype in rows
    )  # fmt: skip


def is_whole(common: SendsLine) -> bool:
    """Return whether a line says as much of each stage as of the others."""
    count = len(common.stages)
    lists = (common.derived, common.collective, common.dtype)
    return all(len(one) == count for one in lists) and (
        common.wire_bytes is None or len(common.wire_bytes) == count
    )
