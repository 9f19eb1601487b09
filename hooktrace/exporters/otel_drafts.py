"""Records as drafts of spans: a step, its buckets, their stages.  No backend is imported.

The spans of one step on all ranks are one trace: its id and the id of its root, rank 0's step
span, are hashes of (run id, model, step).

A device's times are never drawn as spans, because they have no place in wall-clock time: such a
bucket's span shows when the host enqueued it, and device times are attributes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b

from ..records import AnomalyRecord, BucketRecord, ErrorRecord, RunInfo, Stage, StepRecord, Transfer

__all__ = [
    "Attributes",
    "Draft",
    "Event",
    "StepIds",
    "draft_anomaly",
    "draft_buckets",
    "draft_step",
]

Attributes = dict[str, str | bool | int | float]

_EXCEPTION_TYPE = re.compile(r"[A-Za-z_][\w.]*(?=:|$)")


@dataclass(frozen=True, slots=True)
class StepIds:
    """The ids that every rank computes for one step of one model: 128 and 64 bits, never 0."""

    trace_id: int
    root_span_id: int

    @classmethod
    def of(cls, run_id: str, model: str, step: int) -> StepIds:
        """Hash (run id, model, step).  The same job run again under the same id gets the same."""
        text = f"{run_id}\0{model}\0{step}".encode(errors="surrogateescape")
        digest = blake2b(text, digest_size=24, person=b"hooktrace step").digest()
        return cls(int.from_bytes(digest[:16]) or 1, int.from_bytes(digest[16:]) or 1)


@dataclass(frozen=True, slots=True)
class Event:
    """Something at one moment of a span, in Unix ns."""

    name: str
    time_ns: int
    attributes: Attributes


@dataclass(slots=True)
class Draft:
    """A span to be: times in Unix ns, ``error`` sets the status, ``children`` lie inside it."""

    name: str
    start_ns: int
    end_ns: int
    attributes: Attributes
    events: tuple[Event, ...] = ()
    error: str | None = None
    children: tuple[Draft, ...] = ()


def draft_step(
    run: RunInfo, step: StepRecord, common: Attributes, anomalies: Iterable[AnomalyRecord] = ()
) -> Draft:
    """Draft a step's span without its buckets; ``common`` is added to its attributes."""
    return Draft(
        name="ddp step",
        start_ns=run.wall_ns(step.first_ready_ns),
        end_ns=run.wall_ns(step.done_ns),
        attributes=common | _step_attributes(step),
        events=tuple(_anomaly_event(run, anomaly) for anomaly in anomalies),
    )


def draft_buckets(
    run: RunInfo,
    buckets: Iterable[BucketRecord],
    common: Attributes,
    anomalies: Mapping[int, list[AnomalyRecord]],
) -> Iterator[Draft]:
    """Draft the spans of a step's buckets, with stages inside; ``anomalies`` by bucket index."""
    for bucket in buckets:
        events = tuple(_anomaly_event(run, a) for a in anomalies.get(bucket.bucket, ()))
        done_ns = run.wall_ns(bucket.done_ns)
        if bucket.exception is not None:
            events = (*events, _exception_event(bucket.exception, done_ns))
        yield Draft(
            name=f"bucket {bucket.bucket}",
            start_ns=run.wall_ns(bucket.ready_ns),
            end_ns=done_ns,
            attributes=common | _bucket_attributes(bucket),
            events=events,
            error=bucket.exception or (_first_message(anomalies, bucket.bucket)),
            children=tuple(_draft_stages(run, bucket, common)),
        )


def draft_anomaly(run: RunInfo, anomaly: AnomalyRecord, common: Attributes) -> Draft:
    """Draft a span of no length for an anomaly whose step was exported before it."""
    event = _anomaly_event(run, anomaly)
    return Draft(
        name=f"anomaly {anomaly.kind}",
        start_ns=event.time_ns,
        end_ns=event.time_ns,
        attributes=common | event.attributes,
        error=anomaly.message,
    )


def _draft_stages(run: RunInfo, bucket: BucketRecord, common: Attributes) -> Iterator[Draft]:
    if bucket.clock == "device":
        return
    for stage in bucket.stages:
        yield Draft(
            name=stage.name,
            start_ns=run.wall_ns(stage.start_ns),
            end_ns=run.wall_ns(stage.end_ns),
            attributes=common | _stage_attributes(stage),
        )


def _step_attributes(step: StepRecord) -> Attributes:
    return _known(
        {
            "hooktrace.model": step.model,
            "hooktrace.hook": step.hook,
            "hooktrace.step": step.step,
            "hooktrace.generation": step.generation,
            "hooktrace.clock": step.clock,
            "hooktrace.bucket.count": step.bucket_count,
            "hooktrace.gradient_bytes": step.gradient_bytes,
            "hooktrace.wire_bytes": step.wire_bytes,
            "hooktrace.compression_ratio": step.compression_ratio,
            "hooktrace.sent": _sent(step.sent),
            "hooktrace.busy_ns": step.busy_ns,
            "hooktrace.exposed_ns": step.exposed_ns,
            "hooktrace.overlap_ratio": step.overlap_ratio,
            "hooktrace.period_ns": step.period_ns,
            "hooktrace.busbw_bytes_per_second": step.busbw_bytes_per_second,
            "hooktrace.shadow": step.shadow,
            "hooktrace.warmup": step.warmup,
            "hooktrace.complete": step.complete,
        }
    )


def _bucket_attributes(bucket: BucketRecord) -> Attributes:
    attributes = _known(
        {
            "hooktrace.model": bucket.model,
            "hooktrace.hook": bucket.hook,
            "hooktrace.step": bucket.step,
            "hooktrace.generation": bucket.generation,
            "hooktrace.clock": bucket.clock,
            "hooktrace.bucket.index": bucket.bucket,
            "hooktrace.bucket.is_last": bucket.is_last,
            "hooktrace.bucket.dtype": bucket.dtype,
            "hooktrace.bucket.device_type": bucket.device_type,
            "hooktrace.bucket.parameter_count": bucket.parameter_count,
            "hooktrace.gradient_bytes": bucket.gradient_bytes,
            "hooktrace.wire_bytes": bucket.wire_bytes,
            "hooktrace.compression_ratio": bucket.compression_ratio,
            "hooktrace.sent": _sent(bucket.sent),
            **({} if bucket.error is None else _error_attributes(bucket.error)),
            "hooktrace.busbw_bytes_per_second": bucket.busbw_bytes_per_second,
            "hooktrace.shadow": bucket.shadow,
            "hooktrace.warmup": bucket.warmup,
        }
    )
    if bucket.clock == "device":
        attributes.update(_device_attributes(bucket))
    return attributes


def _device_attributes(bucket: BucketRecord) -> Attributes:
    """Device times as numbers; only ``resolved=False`` where the device events never came back."""
    attributes: Attributes = {"hooktrace.device.resolved": bucket.device is not None}
    if bucket.device is None:
        return attributes
    attributes["hooktrace.device.ready_ns"] = bucket.device.ready_ns
    attributes["hooktrace.device.duration_ns"] = bucket.device.done_ns - bucket.device.ready_ns
    for name in dict.fromkeys(stage.name for stage in bucket.device.stages):
        attributes[f"hooktrace.device.{name}_ns"] = bucket.stage_ns(name)
    return attributes


def _sent(transfers: tuple[Transfer, ...] | None) -> str | None:
    """Return what an opaque hook sent, to read: ``all_reduce float16 1048576``."""
    if transfers is None:
        return None
    return ", ".join(f"{t.collective} {t.dtype} {t.wire_bytes}" for t in transfers) or "nothing"


def _error_attributes(error: ErrorRecord) -> dict[str, float | str | None]:
    return {
        "hooktrace.error.relative_l2": error.relative_l2,
        "hooktrace.error.cosine": error.cosine,
        "hooktrace.error.max_absolute": error.max_absolute,
        "hooktrace.error.flipped_share": error.flipped_share,
        "hooktrace.error.residual_l2": error.residual_l2,
        "hooktrace.error.scope": error.scope,
        "hooktrace.error.worst": ", ".join(w.name for w in error.worst) or None,
    }


def _stage_attributes(stage: Stage) -> Attributes:
    attributes: Attributes = {"hooktrace.stage": stage.name}
    if stage.derived:
        attributes["hooktrace.stage.derived"] = True
    if stage.collective is not None:
        attributes["hooktrace.collective"] = stage.collective
    if stage.wire_bytes is not None:
        attributes["hooktrace.wire_bytes"] = stage.wire_bytes
    if stage.dtype is not None:
        attributes["hooktrace.wire.dtype"] = stage.dtype
    return attributes


def _known(attributes: Mapping[str, str | bool | int | float | None]) -> Attributes:
    return {key: value for key, value in attributes.items() if value is not None}


def _first_message(anomalies: Mapping[int, list[AnomalyRecord]], bucket: int) -> str | None:
    of_bucket = anomalies.get(bucket)
    return of_bucket[0].message if of_bucket else None


def _anomaly_event(run: RunInfo, anomaly: AnomalyRecord) -> Event:
    attributes: Attributes = {
        "hooktrace.anomaly.kind": anomaly.kind,
        "hooktrace.anomaly.message": anomaly.message,
        "hooktrace.model": anomaly.model,
        "hooktrace.hook": anomaly.hook,
        "hooktrace.step": anomaly.step,
        "hooktrace.generation": anomaly.generation,
        "hooktrace.bucket.index": anomaly.bucket,
        "hooktrace.stage": anomaly.stage,
        **_known({"hooktrace.rank": anomaly.rank, "hooktrace.parameter": anomaly.parameter}),
    }
    return Event("hooktrace.anomaly", run.wall_ns(anomaly.time_ns), attributes)


def _exception_event(text: str, time_ns: int) -> Event:
    attributes: Attributes = {"exception.message": text}
    if match := _EXCEPTION_TYPE.match(text):
        attributes["exception.type"] = match.group()
    return Event("exception", time_ns, attributes)
