"""What spans say of steps, buckets, units, stages, anomalies and hangs: attributes by name.

What is not known of a record has no attribute.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..records import BucketRecord, HangRecord, StepRecord
from ..records.bucket import Transfer

Attributes = dict[str, str | bool | int | float]

_LONGEST_STACKS = 8192
"""Characters of the stacks of all ranks: many backends refuse longer attributes."""

_Table = Mapping[str, str]
"""Attribute names with the fields that they show."""


def _named(prefix: str, *fields: str) -> _Table:
    return {prefix + field: field for field in fields}


_WHERE = _named("hooktrace.", "model", "hook", "step", "rebuild")
_BOTH: _Table = {
    **_named("hooktrace.", "clock", "join_dummy", "warmup", "gradient_bytes", "wire_bytes"),
    **_named("hooktrace.", "compression_ratio", "busbw_bytes_per_second"),
    **_WHERE,
}


def _sharded(table: _Table) -> _Table:
    """Return a table for a sharded model, whose collectives carry more than gradients."""
    payload = {"hooktrace.gradient_bytes": "hooktrace.payload_bytes"}
    return {payload.get(name, name): field for name, field in table.items()}


_STEP: _Table = {
    **_named("hooktrace.", "communication_ns", "exposed_ns", "overlap_ratio", "complete"),
    "hooktrace.bucket.count": "bucket_count",
    "hooktrace.previous_period_ns": "previous_period_ns",
    **_BOTH,
}
_SHARDED_STEP = _sharded(_STEP)
_BUCKET: _Table = {
    **_named("hooktrace.bucket.", "is_last", "dtype", "device_type", "parameter_count"),
    "hooktrace.bucket.index": "bucket",
    **_BOTH,
}
_UNIT = _sharded(
    {
        **_named("hooktrace.unit.", "dtype", "device_type", "parameter_count"),
        "hooktrace.exposed_ns": "exposed_ns",
        **_BOTH,
    }
)
_OF_UNIT = _named("hooktrace.unit.", "name", "collective", "phase", "repeat")
_ERROR = _named(
    "hooktrace.error.", "relative_l2", "cosine", "max_absolute", "flipped_share", "residual_l2"
)
STAGE: _Table = {
    **_named("hooktrace.", "collective", "wire_bytes"),
    "hooktrace.stage": "name",
    "hooktrace.wire.dtype": "dtype",
}
ANOMALY: _Table = {
    **_named("hooktrace.anomaly.", "kind", "message"),
    **_named("hooktrace.", "stage", "rank", "parameter"),
    "hooktrace.bucket.index": "bucket",
    **_WHERE,
}
_HANG: _Table = {
    **_named("hooktrace.hang.", "kind", "message"),
    **_named("hooktrace.", "model", "hook", "step"),
}
RUN: _Table = {
    **_named("hooktrace.", "run_id", "rank", "local_rank", "world_size"),
    "host.name": "host",
}


def of_step(step: StepRecord) -> Attributes:
    """Say what is known of a step."""
    return known(step, _SHARDED_STEP if step.sharded else _STEP) | sent(step.sent)


def of_bucket(bucket: BucketRecord) -> Attributes:
    """Say what is known of a bucket, its error where it was checked, its times on a device."""
    unit = bucket.unit
    own = known(bucket, _BUCKET)
    if unit is not None:
        own = known(bucket, _UNIT) | known(unit, _OF_UNIT)
    attributes = own | sent(bucket.sent)
    if bucket.error is not None:
        attributes |= known(bucket.error, _ERROR)
        if bucket.error.worst:
            attributes["hooktrace.error.worst"] = ", ".join(w.name for w in bucket.error.worst)
    if bucket.clock == "device":
        attributes |= _device(bucket)
    elif bucket.bounded:
        attributes["hooktrace.bounded"] = True
    return attributes


def of_exception(text: str) -> Attributes:
    """Say what a hook raised, by OpenTelemetry's conventions for the event ``exception``."""
    attributes: Attributes = {"exception.message": text}
    if match := re.match(r"[A-Za-z_][\w.]*(?=:|$)", text):
        attributes["exception.type"] = match[0]
    return attributes


def of_hang(hang: HangRecord) -> Attributes:
    """Say what is known of a hang; ranks as text, ``0, 1, 3``: some backends take no lists."""
    found = known(hang, _HANG) | {
        "hooktrace.hang.waiting": ", ".join(map(str, hang.waiting)),
        "hooktrace.hang.ranks": ", ".join(map(str, hang.ranks)),
        "hooktrace.hang.ended": hang.ended_after_ns is not None,
    }
    if hang.bucket >= 0:
        found["hooktrace.bucket.index"] = hang.bucket
    if hang.unit:
        found["hooktrace.unit"] = hang.unit
    if hang.stacks:
        stacks = "\n\n".join(f"rank {one.rank} ({one.state})\n{one.text}" for one in hang.stacks)
        found["hooktrace.hang.stacks"] = stacks[:_LONGEST_STACKS]
    return found


def known(record: object, table: _Table) -> Attributes:
    """Return the attributes of a table of which the record knows the value."""
    values = ((name, getattr(record, field)) for name, field in table.items())
    return {name: value for name, value in values if value is not None}


def sent(transfers: tuple[Transfer, ...] | None) -> Attributes:
    """Say what a plain hook sent, to read: ``all_reduce float16 1048576``."""
    if transfers is None:
        return {}
    text = ", ".join(f"{t.collective} {t.dtype} {t.wire_bytes}" for t in transfers)
    return {"hooktrace.sent": text or "nothing"}


def _device(bucket: BucketRecord) -> Attributes:
    """Device times as numbers; only ``resolved=False`` where the device events never came back."""
    if bucket.device is None:
        return {"hooktrace.device.resolved": False}
    return {
        "hooktrace.device.resolved": True,
        "hooktrace.device.ready_ns": bucket.device.ready_ns,
        "hooktrace.device.duration_ns": bucket.device.done_ns - bucket.device.ready_ns,
        **{f"hooktrace.device.{name}_ns": ns for name, ns in bucket.stage_totals_ns().items()},
    }
