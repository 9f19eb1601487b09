"""What spans say of records, by OpenTelemetry attribute name.  No backend is imported.

What is not known of a record has no attribute.  Times on a device, which have no place in
wall-clock time, are attributes of the bucket.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..records import AnomalyRecord, BucketRecord, RunInfo, Stage, StepRecord, Transfer

Attributes = dict[str, str | bool | int | float]

_Table = Mapping[str, str]
"""Attribute names with the fields that they show."""


def _named(prefix: str, *fields: str) -> _Table:
    return {prefix + field: field for field in fields}


_EXCEPTION_TYPE = re.compile(r"[A-Za-z_][\w.]*(?=:|$)")
_WHERE = _named("hooktrace.", "model", "hook", "step", "generation")
_BOTH: _Table = {
    **_named("hooktrace.", "clock", "shadow", "warmup", "gradient_bytes", "wire_bytes"),
    **_named("hooktrace.", "compression_ratio", "busbw_bytes_per_second"),
    **_WHERE,
}
_STEP: _Table = {
    **_named("hooktrace.", "busy_ns", "exposed_ns", "overlap_ratio", "period_ns", "complete"),
    "hooktrace.bucket.count": "bucket_count",
    **_BOTH,
}
_BUCKET: _Table = {
    **_named("hooktrace.bucket.", "is_last", "dtype", "device_type", "parameter_count"),
    "hooktrace.bucket.index": "bucket",
    **_BOTH,
}
_ERROR: _Table = {
    **_named("hooktrace.error.", "relative_l2", "cosine", "max_absolute", "flipped_share"),
    **_named("hooktrace.error.", "residual_l2", "scope"),
}
_STAGE: _Table = {
    **_named("hooktrace.", "collective", "wire_bytes"),
    "hooktrace.stage": "name",
    "hooktrace.wire.dtype": "dtype",
}
_ANOMALY: _Table = {
    **_named("hooktrace.anomaly.", "kind", "message"),
    **_named("hooktrace.", "stage", "rank", "parameter"),
    "hooktrace.bucket.index": "bucket",
    **_WHERE,
}
_RUN: _Table = {
    **_named("hooktrace.", "run_id", "rank", "local_rank", "world_size"),
    "host.name": "host",
}


def of_run(run: RunInfo) -> Attributes:
    """Say which process of which job this is."""
    return _known(run, _RUN)


def of_step(step: StepRecord) -> Attributes:
    """Say what is known of a step."""
    return _known(step, _STEP) | _sent(step.sent)


def of_bucket(bucket: BucketRecord) -> Attributes:
    """Say what is known of a bucket, its error where it was probed, its times on a device."""
    attributes = _known(bucket, _BUCKET) | _sent(bucket.sent)
    if bucket.error is not None:
        attributes |= _known(bucket.error, _ERROR)
        if bucket.error.worst:
            attributes["hooktrace.error.worst"] = ", ".join(w.name for w in bucket.error.worst)
    if bucket.clock == "device":
        attributes |= _device(bucket)
    return attributes


def of_stage(stage: Stage) -> Attributes:
    """Say what is known of a stage."""
    attributes = _known(stage, _STAGE)
    if stage.derived:
        attributes["hooktrace.stage.derived"] = True
    return attributes


def of_anomaly(anomaly: AnomalyRecord) -> Attributes:
    """Say what went wrong."""
    return _known(anomaly, _ANOMALY)


def of_exception(text: str) -> Attributes:
    """Say what a hook raised, by OpenTelemetry's conventions for the event ``exception``."""
    attributes: Attributes = {"exception.message": text}
    if match := _EXCEPTION_TYPE.match(text):
        attributes["exception.type"] = match.group()
    return attributes


def _known(record: object, table: _Table) -> Attributes:
    values = ((name, getattr(record, field)) for name, field in table.items())
    return {name: value for name, value in values if value is not None}


def _sent(transfers: tuple[Transfer, ...] | None) -> Attributes:
    """Say what an opaque hook sent, to read: ``all_reduce float16 1048576``."""
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
