"""What stands in a record file and nowhere else: three kinds of line, as they are read.

All other lines are the records themselves.  A bucket's line leaves out what the layout of its
generation says, and counts times from the moment the bucket was ready.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple, cast

import msgspec
from msgspec.structs import asdict, replace

from .base import Count, Ns, Record
from .bucket import BucketCall, BucketRecord, LayoutRecord, Members, Stage, Unit
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


class BucketLine(
    BucketCall,
    frozen=True,
    kw_only=True,
    tag_field="kind",
    tag="bucket",
    omit_defaults=True,
    gc=False,
    rename={"launched_ns": "launch_ns", "done_ns": "duration_ns"},
):
    """A bucket as it stands in a file.

    ``launched_ns``, ``done_ns`` and ``stages`` are ns after ``ready_ns``, and the first two called
    so; the stages of ``device`` are ns after the device's ``ready_ns``.  The fields below are
    ``BucketRecord``'s: all of them where they are not what the layout says, else none.
    """

    launched_ns: Ns
    done_ns: Ns
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
    def of(cls, record: BucketRecord, layout: BucketFacts | None) -> BucketLine:
        """Return the line of a record; ``layout``: what the file says of the bucket already."""
        own, device, ready_ns = _FACTS(record), record.device, record.ready_ns
        line = cls(
            model=record.model,
            generation=record.generation,
            step=record.step,
            bucket=record.bucket,
            ready_ns=ready_ns,
            launched_ns=record.launched_ns - ready_ns,
            done_ns=record.done_ns - ready_ns,
            stages=_shortened(record.stages, ready_ns),
            wire_bytes=record.wire_bytes,
            bus_bytes=record.bus_bytes,
        )
        if own == layout and _RARE(record) == _NONE_OF_THEM:
            return line  # each further field costs as much as all of these
        return replace(
            line,
            device=device and replace(device, stages=_shortened(device.stages, device.ready_ns)),
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

    def record(self, facts: BucketFacts) -> BucketRecord:
        """Return the record; ``facts``: what ``facts()`` gave."""
        device, ready_ns = self.device, self.ready_ns
        return BucketRecord(
            **{name: getattr(self, name) for name in BucketCall.__struct_fields__}
            | {
                "launched_ns": ready_ns + self.launched_ns,
                "done_ns": ready_ns + self.done_ns,
                "stages": _moved(self.stages, ready_ns),
                "device": device and replace(device, stages=_moved(device.stages, device.ready_ns)),
            }
            | facts._asdict()
        )


_FACTS = attrgetter(*BucketFacts._fields)
_RARE = attrgetter(
    "device", "shadow", "warmup", "probed", "exception", "error", "sent", "exposed_ns"
)
_NONE_OF_THEM = (None, False, False, False, None, None, None, None)


def _shortened(stages: Iterable[Stage], zero_ns: int) -> tuple[Stage, ...]:
    """Return stages as arrays for the encoder: ns after ``zero_ns``, unknown ends left out."""
    rows: list[tuple[object, ...]] = []
    for s in stages:
        row = (s.name, s.start_ns - zero_ns, s.end_ns - zero_ns)
        if s.collective is not None or s.wire_bytes is not None or s.dtype is not None:
            rows.append((*row, s.derived, s.collective, s.wire_bytes, s.dtype))
        else:
            rows.append((*row, True) if s.derived else row)
    return cast(tuple[Stage, ...], tuple(rows))


def _moved(stages: Iterable[Stage], zero_ns: int) -> tuple[Stage, ...]:
    return tuple(
        replace(s, start_ns=zero_ns + s.start_ns, end_ns=zero_ns + s.end_ns) for s in stages
    )
