"""The one table of metrics, and how a batch of records becomes observations of them.

Prometheus, OpenTelemetry, the dashboards and the docs all follow ``METRICS``; nothing else names a
metric.  Data flow: ``observe(batch)`` yields ``Observation`` values; ``exporters/prometheus.py``
adds them up in ``Aggregates``, ``exporters/opentelemetry.py`` records them on instruments.

Labels are model, hook, bucket, stage, collective, dtype, kind, exporter, reason and never the step.
Rank is a target label
(Prometheus) or a resource attribute (OpenTelemetry).  Warm-up steps, shadow calls and incomplete
steps are counted, but give no timings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from .anomaly import AnomalyRecord
from .batch import Batch
from .bucket import BucketRecord, ErrorRecord
from .layout import LayoutRecord
from .run import ClockRecord
from .skew import SkewRecord
from .step import StepRecord

__all__ = ["MAX_BUCKET_LABELS", "METRICS", "Metric", "Observation", "bucket_label", "observe"]

Kind = Literal["counter", "gauge", "histogram", "info"]

MAX_BUCKET_LABELS = 64
"""Bucket indices from here on share the label value ``other``."""

_SECONDS = (
    0.00005,
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
)


_RATIOS = (
    0.0,
    *(10.0**exponent for exponent in range(-8, -3)),
    0.001,
    0.003,
    0.01,
    0.03,
    0.1,
    0.2,
    0.3,
    0.5,
    0.7,
    1.0,
    2.0,
    10.0,
)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    ``name`` is the Prometheus name without the ``_total`` or ``_info`` that its kind adds;
    ``otel_name`` and ``unit`` (UCUM) are OpenTelemetry's.  ``buckets`` are a histogram's upper
    bounds in the base unit.  ``cumulative`` marks a counter whose observations are totals so far.
    """

    name: str
    otel_name: str
    unit: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    cumulative: bool = False


_MODEL = ("model", "hook")

STEPS = Metric(
    "hooktrace_steps",
    "hooktrace.steps",
    "{step}",
    "counter",
    "Backward passes that communicated, warm-up and shadow steps included.",
    _MODEL,
)
WARMUP_STEPS = Metric(
    "hooktrace_warmup_steps",
    "hooktrace.warmup.steps",
    "{step}",
    "counter",
    "Steps before DDP settled its buckets; they stay out of all timings.",
    _MODEL,
)
SHADOW_STEPS = Metric(
    "hooktrace_shadow_steps",
    "hooktrace.shadow.steps",
    "{step}",
    "counter",
    "Steps that DDP made under join() for a rank that has run out of data.",
    _MODEL,
)
INCOMPLETE_STEPS = Metric(
    "hooktrace_incomplete_steps",
    "hooktrace.incomplete.steps",
    "{step}",
    "counter",
    "Steps with a bucket missing: backward failed, or a record was lost.",
    _MODEL,
)
STEP_PERIOD = Metric(
    "hooktrace_step_period_seconds",
    "hooktrace.step.period",
    "s",
    "histogram",
    "Time from one step's first ready bucket to the next one's.",
    _MODEL,
    _SECONDS,
)
EXPOSED = Metric(
    "hooktrace_exposed_seconds",
    "hooktrace.exposed",
    "s",
    "histogram",
    "Communication of a step that the backward pass did not hide.",
    _MODEL,
    _SECONDS,
)
BUSY = Metric(
    "hooktrace_busy_seconds",
    "hooktrace.busy",
    "s",
    "histogram",
    "Time of a step during which at least one bucket was being communicated.",
    _MODEL,
    _SECONDS,
)
OVERLAP = Metric(
    "hooktrace_overlap_ratio",
    "hooktrace.overlap.ratio",
    "1",
    "gauge",
    "Share of the last step's communication that the backward pass hid.",
    _MODEL,
)
BUSBW = Metric(
    "hooktrace_bus_bandwidth_bytes_per_second",
    "hooktrace.bus.bandwidth",
    "By/s",
    "gauge",
    "Bus bandwidth of the last step, as nccl-tests defines it.",
    _MODEL,
)
BUCKET_DURATION = Metric(
    "hooktrace_bucket_duration_seconds",
    "hooktrace.bucket.duration",
    "s",
    "histogram",
    "Time of a bucket from ready to done.",
    (*_MODEL, "bucket"),
    _SECONDS,
)
STAGE_DURATION = Metric(
    "hooktrace_stage_duration_seconds",
    "hooktrace.stage.duration",
    "s",
    "histogram",
    "Time of a bucket in one stage: queue, compress, wire, decompress.",
    (*_MODEL, "stage"),
    _SECONDS,
)
GRADIENT_BYTES = Metric(
    "hooktrace_gradient_bytes",
    "hooktrace.gradient.io",
    "By",
    "counter",
    "Bytes of gradients given to the hook.",
    (*_MODEL, "bucket"),
)
WIRE_BYTES = Metric(
    "hooktrace_wire_bytes",
    "hooktrace.wire.io",
    "By",
    "counter",
    "Bytes of payload that this rank gave to collectives; absent for opaque hooks.",
    (*_MODEL, "bucket"),
)
STEP_WIRE_BYTES = Metric(
    "hooktrace_step_wire_bytes",
    "hooktrace.step.wire.size",
    "By",
    "gauge",
    "Payload of the last step of which it is known, by collective and dtype.",
    (*_MODEL, "collective", "dtype"),
)
COMPRESSION_RATIO = Metric(
    "hooktrace_compression_ratio",
    "hooktrace.compression.ratio",
    "1",
    "gauge",
    "Gradient bytes over wire bytes of the last step of which both are known.",
    _MODEL,
)
BUCKET_SIZE = Metric(
    "hooktrace_bucket_size_bytes",
    "hooktrace.bucket.size",
    "By",
    "gauge",
    "Gradient bytes of a bucket in the current generation.",
    (*_MODEL, "bucket"),
)
GENERATION = Metric(
    "hooktrace_bucket_generation",
    "hooktrace.bucket.generation",
    "{generation}",
    "gauge",
    "How often DDP has rebuilt its buckets.",
    _MODEL,
)
COMPRESSION_ERROR = Metric(
    "hooktrace_compression_error_ratio",
    "hooktrace.compression.error",
    "1",
    "histogram",
    "Relative L2 distance of a probed bucket's result from the lossless average.",
    _MODEL,
    _RATIOS,
)
BUCKET_ERROR = Metric(
    "hooktrace_bucket_error_ratio",
    "hooktrace.bucket.error",
    "1",
    "gauge",
    "Relative L2 error of the last probed result of a bucket.",
    (*_MODEL, "bucket"),
)
BUCKET_COSINE = Metric(
    "hooktrace_bucket_cosine_ratio",
    "hooktrace.bucket.cosine",
    "1",
    "gauge",
    "Cosine similarity of the last probed result of a bucket with the lossless average.",
    (*_MODEL, "bucket"),
)
ANOMALIES = Metric(
    "hooktrace_anomalies",
    "hooktrace.anomalies",
    "{anomaly}",
    "counter",
    "Things that went wrong in a hook, by kind.",
    (*_MODEL, "kind"),
)
ARRIVAL_LAG = Metric(
    "hooktrace_arrival_lag_seconds",
    "hooktrace.arrival.lag",
    "s",
    "histogram",
    "How long after the first rank this one had a probed bucket ready; where clocks are known.",
    _MODEL,
    _SECONDS,
)
CLOCK_OFFSET = Metric(
    "hooktrace_clock_offset_seconds",
    "hooktrace.clock.offset",
    "s",
    "gauge",
    "What has to be added to this rank's clock to get rank 0's.",
)
CLOCK_UNCERTAINTY = Metric(
    "hooktrace_clock_uncertainty_seconds",
    "hooktrace.clock.uncertainty",
    "s",
    "gauge",
    "By how much the clock offset may be wrong: half of the shortest round trip.",
)
RECORDS_LOST = Metric(
    "hooktrace_records_lost",
    "hooktrace.records.lost",
    "{record}",
    "counter",
    "Records that were lost, by reason.",
    ("reason",),
    cumulative=True,
)
EXPORTER_FAILURES = Metric(
    "hooktrace_exporter_failures",
    "hooktrace.exporter.failures",
    "{failure}",
    "counter",
    "Exporters that raised and were disabled.",
    ("exporter",),
    cumulative=True,
)
RUN = Metric(
    "hooktrace_run",
    "hooktrace.run",
    "1",
    "info",
    "The job that this process belongs to.",
    ("run_id", "world_size", "backend", "torch_version"),
)

METRICS: tuple[Metric, ...] = (
    STEPS,
    WARMUP_STEPS,
    SHADOW_STEPS,
    INCOMPLETE_STEPS,
    STEP_PERIOD,
    EXPOSED,
    BUSY,
    OVERLAP,
    BUSBW,
    BUCKET_DURATION,
    STAGE_DURATION,
    GRADIENT_BYTES,
    WIRE_BYTES,
    STEP_WIRE_BYTES,
    COMPRESSION_RATIO,
    BUCKET_SIZE,
    GENERATION,
    COMPRESSION_ERROR,
    BUCKET_ERROR,
    BUCKET_COSINE,
    ANOMALIES,
    ARRIVAL_LAG,
    CLOCK_OFFSET,
    CLOCK_UNCERTAINTY,
    RECORDS_LOST,
    EXPORTER_FAILURES,
    RUN,
)
"""Every metric, once."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One value of one metric; ``labels`` are in the order of ``metric.labels``."""

    metric: Metric
    labels: tuple[str, ...]
    value: float


def bucket_label(index: int) -> str:
    """Return the bounded label value of a bucket index."""
    return str(index) if index < MAX_BUCKET_LABELS else "other"


def observe(batch: Batch) -> Iterator[Observation]:
    """Yield every observation of a batch, steps in order, totals of losses and failures last."""
    run = batch.run
    yield Observation(RUN, (run.run_id, str(run.world_size), run.backend, run.torch_version), 1.0)
    for layout in batch.of(LayoutRecord):
        model = (layout.model, layout.hook)
        yield Observation(GENERATION, model, layout.generation)
        for entry in layout.buckets:
            if entry.bucket < MAX_BUCKET_LABELS:
                labels = (*model, bucket_label(entry.bucket))
                yield Observation(BUCKET_SIZE, labels, entry.gradient_bytes)
    for step, buckets in batch.steps:
        yield from _observe_step(step)
        yield from _observe_sent(step, buckets)
        for bucket in buckets:
            yield from _observe_bucket(bucket, timed=step.counts)
    for anomaly in batch.of(AnomalyRecord):
        yield Observation(ANOMALIES, (anomaly.model, anomaly.hook, anomaly.kind), 1)
    for skew in batch.of(SkewRecord):
        if skew.uncertainty_ns is not None:
            yield Observation(ARRIVAL_LAG, (skew.model, skew.hook), skew.lag_ns / 1e9)
    for clock in batch.of(ClockRecord)[-1:]:
        yield Observation(CLOCK_OFFSET, (), clock.offset_ns / 1e9)
        yield Observation(CLOCK_UNCERTAINTY, (), clock.uncertainty_ns / 1e9)
    for reason, count in batch.losses.items():
        yield Observation(RECORDS_LOST, (reason,), count)
    for exporter, count in batch.failures.items():
        yield Observation(EXPORTER_FAILURES, (exporter,), count)


def _observe_step(step: StepRecord) -> Iterator[Observation]:
    labels = (step.model, step.hook)
    yield Observation(STEPS, labels, 1)
    for metric, applies in (
        (WARMUP_STEPS, step.warmup),
        (SHADOW_STEPS, step.shadow),
        (INCOMPLETE_STEPS, not step.complete),
    ):
        if applies:
            yield Observation(metric, labels, 1)
    if not step.counts:
        return
    for metric, ns in (
        (STEP_PERIOD, step.period_ns),
        (EXPOSED, step.exposed_ns),
        (BUSY, step.busy_ns),
    ):
        if ns is not None:
            yield Observation(metric, labels, ns / 1e9)
    if step.overlap_ratio is not None:
        yield Observation(OVERLAP, labels, step.overlap_ratio)
    if step.busbw_bytes_per_second is not None:
        yield Observation(BUSBW, labels, step.busbw_bytes_per_second)


def _observe_sent(step: StepRecord, buckets: tuple[BucketRecord, ...]) -> Iterator[Observation]:
    if step.wire_bytes is None or not step.counts:
        return
    labels = (step.model, step.hook)
    if step.compression_ratio is not None:
        yield Observation(COMPRESSION_RATIO, labels, step.compression_ratio)
    sums: Counter[tuple[str, str]] = Counter()
    for transfer in step.sent or [t for bucket in buckets for t in bucket.transfers]:
        sums[transfer.collective, transfer.dtype] += transfer.wire_bytes
    for kind, size in sums.items():
        yield Observation(STEP_WIRE_BYTES, (*labels, *kind), size)


def _observe_bucket(bucket: BucketRecord, *, timed: bool) -> Iterator[Observation]:
    model = (bucket.model, bucket.hook)
    labels = (*model, bucket_label(bucket.bucket))
    yield Observation(GRADIENT_BYTES, labels, bucket.gradient_bytes)
    if bucket.wire_bytes is not None and bucket.sent is None:  # a counter has to see all steps
        yield Observation(WIRE_BYTES, labels, bucket.wire_bytes)
    if bucket.error is not None and not bucket.shadow:
        yield from _observe_error(bucket.error, labels)
    if not timed or bucket.exception is not None:
        return
    if bucket.duration_ns is not None:
        yield Observation(BUCKET_DURATION, labels, bucket.duration_ns / 1e9)
    totals: dict[str, int] = {}
    for stage in bucket.timed_stages:
        totals[stage.name] = totals.get(stage.name, 0) + stage.duration_ns
    for name, ns in totals.items():
        yield Observation(STAGE_DURATION, (*model, name), ns / 1e9)


def _observe_error(error: ErrorRecord, labels: tuple[str, str, str]) -> Iterator[Observation]:
    if error.relative_l2 is not None:
        yield Observation(COMPRESSION_ERROR, labels[:2], error.relative_l2)
        yield Observation(BUCKET_ERROR, labels, error.relative_l2)
    if error.cosine is not None:
        yield Observation(BUCKET_COSINE, labels, error.cosine)
