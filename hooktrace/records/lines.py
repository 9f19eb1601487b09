"""What stands in a record file and nowhere else: four kinds of line, as they are read.

All other lines are the records themselves.  A bucket's line counts times from the moment the bucket
was ready.  Its stages are columns, so that any engine can ask for them.  What many calls have in
common (the bucket's facts, their stages' collectives and dtypes) stands once, in a line of its own,
whose number theirs name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from operator import attrgetter
from typing import Annotated, Any, NamedTuple, get_args

import msgspec
from msgspec import Meta
from msgspec.structs import asdict, replace

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


class StageTimes(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """How long the stages of a call took, by name, ns: the sum of several of one name.

    Each begins when the one before it ended, in the order of ``STAGES``, the first at 0.  Where
    that is not so, as of several rounds, ``stage_ns`` are the lengths one by one, and
    ``stage_starts_ns`` their beginnings where there are gaps; the shared line has the names then.
    ``stage_wire_bytes``: what each stage sent, left out where one sends all that the call does.
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
    stage_wire_bytes: Annotated[tuple[Count | None, ...], _MOST_STAGES] = ()

    def check(self) -> None:
        """Raise ``ValueError`` for stages that are not as many as their beginnings."""
        count = len(self.stage_ns)
        if len(self.stage_starts_ns) not in {0, count}:
            raise ValueError(f"{count} stages have {len(self.stage_starts_ns)} beginnings")

    def stages(
        self, zero_ns: int, kinds: tuple[StageKind, ...], call_bytes: int | None
    ) -> tuple[Stage, ...]:
        """Return the stages; none of several rounds where the line with their names is damaged.

        ``zero_ns``: when the first began.  ``call_bytes``: what all of the call sends.
        """
        self.check()
        names = tuple(kind.name for kind in kinds)
        took: Sequence[int] = self.stage_ns
        if took and len(took) != len(names):
            return ()
        if not took:
            known = [(name, getattr(self, column)) for name, column in _COLUMN_OF.items()]
            took = [ns for _, ns in known if ns is not None]
            if names != (names := tuple(name for name, ns in known if ns is not None)):
                kinds = tuple(StageKind(name=name) for name in names)
        sizes: Sequence[int | None] = self.stage_wire_bytes
        if len(sizes) != len(kinds):
            sizes = _sent_by_one(kinds, call_bytes)
        starts = self.stage_starts_ns or (0, *accumulate(took))
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
    """A bucket as it stands in a file; what is not said here is as in ``BucketRecord``.

    ``launched_ns`` and ``done_ns`` are ns after ``ready_ns``, and called so.  ``shared``: the
    number of the line that says the rest, ``bus_bytes`` too where it can.
    """

    model: str
    generation: Count
    step: Step
    bucket: BucketIndex
    shared: Count
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

    def record(self, shared: Shared) -> BucketRecord:
        """Return the record.  Raises ``ValueError`` for stages that are not as many as times."""
        common = shared.get(self.shared, UNKNOWN)
        device, ready_ns, sent = self.device, self.ready_ns, self.wire_bytes
        span = None
        if device is not None:
            stages = device.stages(device.ready_ns, common.device_stages, sent)
            span = DeviceSpan(ready_ns=device.ready_ns, done_ns=device.done_ns, stages=stages)
        bus = self.bus_bytes
        if bus is None and sent is not None and common.bus_per_byte is not None:
            bus = sent * common.bus_per_byte
        return BucketRecord(
            **asdict(common.facts),
            **{name: getattr(self, name) for name in _AS_THEY_ARE},
            launched_ns=ready_ns + self.launched_ns,
            done_ns=ready_ns + self.done_ns,
            stages=self.stages(ready_ns, common.stages, sent),
            device=span,
            bus_bytes=bus,
        )


_FACTS = attrgetter(*BucketFacts.__struct_fields__)
_RARE_NAMES = ("shadow", "warmup", "probed", "exception", "error", "sent", "exposed_ns")
_RARE = attrgetter("device", *_RARE_NAMES)
_NONE_OF_THEM = (None, False, False, False, None, None, None, None)
_OF_CALL = ("model", "generation", "step", "bucket", "ready_ns", "wire_bytes")
_AS_THEY_ARE = (*_OF_CALL, *_RARE_NAMES)
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

    def lines(self, records: Iterable[BucketRecord]) -> list[SharedLine | BucketLine]:
        """Return the lines of buckets; before each stands what it shares and none has said yet."""
        found: list[SharedLine | BucketLine] = []
        for record in records:
            device, ready_ns, sent = record.device, record.ready_ns, record.wire_bytes
            kinds = tuple(map(_KIND, record.stages))
            on_device = () if device is None else tuple(map(_KIND, device.stages))
            per_byte = _bus_per_byte(sent, record.bus_bytes)
            shared = _FACTS(record), per_byte, kinds, on_device
            known = self._known.get(shared)
            if known is None:
                known = self._say(shared, found)
            line = BucketLine(
                model=record.model,
                generation=record.generation,
                step=record.step,
                bucket=record.bucket,
                shared=known.number,
                ready_ns=ready_ns,
                launched_ns=record.launched_ns - ready_ns,
                done_ns=record.done_ns - ready_ns,
                wire_bytes=sent,
                bus_bytes=record.bus_bytes if per_byte is None else None,
                **_times(record.stages, ready_ns, sent, known.columns),
            )
            if _RARE(record) != _NONE_OF_THEM:  # each further field costs as much as all of these
                span = None
                if device is not None:
                    times = _times(device.stages, device.ready_ns, sent, known.device_columns)
                    span = SpanLine(ready_ns=device.ready_ns, done_ns=device.done_ns, **times)
                rare = {name: getattr(record, name) for name in _RARE_NAMES}
                line = replace(line, device=span, **rare)
            found.append(line)
        return found

    def _say(self, shared: tuple[Any, ...], lines: list[SharedLine | BucketLine]) -> _Known:
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
    """Return the fields of ``StageTimes``; ``call_bytes``: what all of the call sends."""
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
