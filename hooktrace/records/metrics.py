"""The one table of metrics: names, units, kinds, labels and help.

``METRICS`` is what Prometheus, OpenTelemetry, the dashboards and the docs follow; nothing else
names a metric.  ``exporters/observations.py`` turns batches of records into values of them.

Labels are model, hook, bucket, stage, collective, dtype, kind, exporter and reason, never the step;
a sharded model (FSDP2) has series by unit, collective and phase where others have them by bucket.
``TARGET_LABELS`` say whose they are, of the Prometheus target or else of each series; OpenTelemetry
has a resource attribute.  No series is of a run: a job that starts again goes on with the series
that it had, and ``RUN`` says which run it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "histogram", "info"]

TARGET_LABELS = ("rank", "local_rank", "host")
"""What a restarted job has again: any other label would begin all series anew.  The run, and what
is known of it, are labels of ``RUN`` alone."""

MAX_BUCKET_LABELS = 64
"""Bucket indices from here on share the label value ``other``."""

MAX_MODELS = 64
"""Models, each with its hook, that one exporter tells apart; later ones share ``other``."""

MAX_UNITS = 128
"""Units of sharded models, in TensorBoard of one model, that an exporter tells apart; later ones
share ``OTHER``."""

OTHER = "other"
"""What is not told apart, as a label's value."""

_BUCKET_LABELS = tuple(str(index) for index in range(MAX_BUCKET_LABELS))


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """One metric; compared and hashed by identity.

    ``name`` is the Prometheus name without the ``_total`` or ``_info`` that its kind adds;
    ``otel_name`` and ``unit`` (UCUM) are OpenTelemetry's.  ``buckets`` are a histogram's upper
    bounds in the base unit.
    """

    name: str
    otel_name: str
    unit: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def prometheus_name(self) -> str:
        """The name as Prometheus shows it, of a histogram without ``_bucket``."""
        return self.name + {"counter": "_total", "info": "_info"}.get(self.kind, "")


_MODEL = ("model", "hook")
_UNIT = (*_MODEL, "unit", "collective", "phase")

# fmt: off
# A table is read line by line: names, unit and kind, then help, labels and bounds.
_SECONDS = (
    0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5, 5.0, 10.0,
)
_STEP_SECONDS = (*_SECONDS, 25.0, 50.0, 100.0, 250.0, 500.0)
_RATIOS = (
    0.0, 1e-08, 1e-07, 1e-06, 1e-05, 0.0001, 0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7,
    1.0, 2.0, 10.0,
)

STEPS = Metric(
    "hooktrace_steps", "hooktrace.steps", "{step}", "counter",
    "Backward passes that communicated, or sharded models' steps; also warm-up and join() dummies.",
    _MODEL,
)
WARMUP_STEPS = Metric(
    "hooktrace_warmup_steps", "hooktrace.warmup.steps", "{step}", "counter",
    "Steps before DDP rebuilt its buckets, or a sharded model's first; in no timings.", _MODEL,
)
JOIN_DUMMY_STEPS = Metric(
    "hooktrace_join_dummy_steps", "hooktrace.join.dummy.steps", "{step}", "counter",
    "Steps that DDP made under join() for a rank that has run out of data.", _MODEL,
)
INCOMPLETE_STEPS = Metric(
    "hooktrace_incomplete_steps", "hooktrace.incomplete.steps", "{step}", "counter",
    "Steps that may miss a bucket or parameter group: backward failed, or a record was lost.",
    _MODEL,
)
STEP_PERIOD = Metric(
    "hooktrace_step_period_seconds", "hooktrace.step.period", "s", "histogram",
    "Time from one step's first ready bucket, or parameter group, to the next one's.", _MODEL,
    _STEP_SECONDS,
)
EXPOSED = Metric(
    "hooktrace_exposed_seconds", "hooktrace.exposed", "s", "histogram",
    "Communication of a step that the backward pass did not hide; if sharded, that is waited for.",
    _MODEL, _STEP_SECONDS,
)
COMMUNICATION = Metric(
    "hooktrace_communication_seconds", "hooktrace.communication", "s", "histogram",
    "Time of a step in which a bucket or parameter group was being communicated.", _MODEL,
    _STEP_SECONDS,
)
BUS_BYTES = Metric(
    "hooktrace_bus_bytes", "hooktrace.bus.io", "By", "counter",
    "Bus bytes (nccl-tests) of timed steps whose time on the wire is known too.", _MODEL,
)
WIRE_IN_FLIGHT = Metric(
    "hooktrace_wire_seconds", "hooktrace.wire.time", "s", "counter",
    "Time with a collective on the wire, waiting for late ranks too, of the same steps.", _MODEL,
)
BUCKET_DURATION = Metric(
    "hooktrace_bucket_duration_seconds", "hooktrace.bucket.duration", "s", "histogram",
    "Time of a bucket from ready to done.", (*_MODEL, "bucket"), _SECONDS,
)
UNIT_DURATION = Metric(
    "hooktrace_unit_seconds", "hooktrace.unit.time", "s", "counter",
    "Time of a sharded model's collectives from begun to done, by unit; of timed steps.", _UNIT,
)
UNIT_EXPOSED = Metric(
    "hooktrace_unit_exposed_seconds", "hooktrace.unit.exposed", "s", "counter",
    "Time for which training waited for a unit's collective, where that is known; of timed steps.",
    _UNIT,
)
STAGE_DURATION = Metric(
    "hooktrace_stage_duration_seconds", "hooktrace.stage.duration", "s", "histogram",
    "Time of a bucket or unit in one stage: serialization_wait, compress, queue, wire, decompress; "
    "or hook, future_wait. In wire is waiting for late ranks.",
    (*_MODEL, "stage"), _SECONDS,
)
GRADIENT_BYTES = Metric(
    "hooktrace_gradient_bytes", "hooktrace.gradient.io", "By", "counter",
    "Bytes of gradients given to the hook.", (*_MODEL, "bucket"),
)
WIRE_BYTES = Metric(
    "hooktrace_wire_bytes", "hooktrace.wire.io", "By", "counter",
    "Bytes of payload that this rank gave to collectives; absent where that is not known.",
    (*_MODEL, "bucket"),
)
UNIT_PAYLOAD = Metric(
    "hooktrace_unit_payload_bytes", "hooktrace.unit.payload.io", "By", "counter",
    "Bytes that FSDP has communicated of a unit: this rank's parameters, or gradients.", _UNIT,
)
UNIT_WIRE = Metric(
    "hooktrace_unit_wire_bytes", "hooktrace.unit.wire.io", "By", "counter",
    "Bytes that this rank gave to collectives for a unit; absent where that is not known.", _UNIT,
)
STEP_WIRE_BYTES = Metric(
    "hooktrace_step_wire_bytes", "hooktrace.step.wire.size", "By", "gauge",
    "Payload of the last step of which it is known, by collective and dtype.",
    (*_MODEL, "collective", "dtype"),
)
COMPRESSION_RATIO = Metric(
    "hooktrace_compression_ratio", "hooktrace.compression.ratio", "1", "gauge",
    "Gradient bytes, if sharded all payload, over wire bytes; of the last step known.", _MODEL,
)
BUCKET_SIZE = Metric(
    "hooktrace_bucket_size_bytes", "hooktrace.bucket.size", "By", "gauge",
    "Gradient bytes of a bucket in the current bucket assignment.", (*_MODEL, "bucket"),
)
REBUILD = Metric(
    "hooktrace_bucket_rebuilds", "hooktrace.bucket.rebuilds", "{rebuild}", "gauge",
    "How often DDP has rebuilt its buckets.", _MODEL,
)
COMPRESSION_ERROR = Metric(
    "hooktrace_compression_error_ratio", "hooktrace.compression.error", "1", "histogram",
    "Relative L2 distance of a bucket's or parameter group's sampled result from the lossless one.",
    _MODEL, _RATIOS,
)
BUCKET_ERROR = Metric(
    "hooktrace_bucket_error_ratio", "hooktrace.bucket.error", "1", "gauge",
    "Relative L2 error of the last sampled result of a bucket.", (*_MODEL, "bucket"),
)
BUCKET_COSINE = Metric(
    "hooktrace_bucket_cosine_ratio", "hooktrace.bucket.cosine", "1", "gauge",
    "Cosine similarity of the last sampled result of a bucket with the lossless average.",
    (*_MODEL, "bucket"),
)
UNIT_ERROR = Metric(
    "hooktrace_unit_error_ratio", "hooktrace.unit.error", "1", "gauge",
    "Relative L2 error of the last sampled result of a unit's collective.", _UNIT,
)
UNIT_COSINE = Metric(
    "hooktrace_unit_cosine_ratio", "hooktrace.unit.cosine", "1", "gauge",
    "Cosine similarity of the last sampled result of a unit's collective with the lossless one.",
    _UNIT,
)
ANOMALIES = Metric(
    "hooktrace_anomalies", "hooktrace.anomalies", "{anomaly}", "counter",
    "What went wrong in a hook, by kind; of each bucket or unit the first.", (*_MODEL, "kind"),
)
HANGS = Metric(
    "hooktrace_hangs", "hooktrace.hangs", "{hang}", "counter",
    "Hangs that were recorded, by kind, on every rank; of two kinds where it changed meanwhile.",
    (*_MODEL, "kind"),
)
HANG_START = Metric(
    "hooktrace_hang_start_time_seconds", "hooktrace.hang.start", "s", "gauge",
    "Since when ranks have waited in a hang that goes on, seconds since 1970; 0 where none does.",
    _MODEL,
)
ARRIVAL_DELAY = Metric(
    "hooktrace_arrival_delay_seconds", "hooktrace.arrival.delay", "s", "histogram",
    "Arrival delay: how long after the first rank this one had a sampled bucket or parameter "
    "group ready; if clocks are known.",
    _MODEL, _STEP_SECONDS,
)
CLOCK_OFFSET = Metric(
    "hooktrace_clock_offset_seconds", "hooktrace.clock.offset", "s", "gauge",
    "What has to be added to this rank's clock to get rank 0's.",
)
CLOCK_UNCERTAINTY = Metric(
    "hooktrace_clock_uncertainty_seconds", "hooktrace.clock.uncertainty", "s", "gauge",
    "By how much the clock offset may be wrong: half of the shortest round trip.",
)
RECORDS_LOST = Metric(
    "hooktrace_records_lost", "hooktrace.records.lost", "{record}", "counter",
    "Records that were lost, by reason.", ("reason",),
)
EXPORTER_FAILURES = Metric(
    "hooktrace_exporter_failures", "hooktrace.exporter.failures", "{failure}", "counter",
    "Exporters that raised and were disabled.", ("exporter",),
)
JOB_RANKS = Metric(
    "hooktrace_job_ranks", "hooktrace.job.ranks", "{rank}", "gauge",
    "Ranks of the job; this and what follows is of rank 0's process, for all ranks.",
)
JOB_REPORTING = Metric(
    "hooktrace_job_reporting_ranks", "hooktrace.job.reporting.ranks", "{rank}", "gauge",
    "Ranks that reported the last step; fewer also where a model is on some ranks only.", _MODEL,
)
JOB_PERIOD_MIN = Metric(
    "hooktrace_job_period_min_seconds", "hooktrace.job.period.min", "s", "gauge",
    "Shortest period over all ranks, of the last step of which it is known.", _MODEL,
)
JOB_PERIOD_MEAN = Metric(
    "hooktrace_job_period_mean_seconds", "hooktrace.job.period.mean", "s", "gauge",
    "Mean period over all ranks, of the last step of which it is known.", _MODEL,
)
JOB_PERIOD_MAX = Metric(
    "hooktrace_job_period_max_seconds", "hooktrace.job.period.max", "s", "gauge",
    "Longest period over all ranks, of the last step of which it is known.", _MODEL,
)
JOB_SLOWEST = Metric(
    "hooktrace_job_slowest_rank", "hooktrace.job.slowest.rank", "1", "gauge",
    "Number of the rank with that period; ranks that wait for each other hardly differ.", _MODEL,
)
JOB_EXPOSED_MIN = Metric(
    "hooktrace_job_exposed_min_seconds", "hooktrace.job.exposed.min", "s", "gauge",
    "Least exposed communication over all ranks, of the last step of which it is known.", _MODEL,
)
JOB_EXPOSED_MEAN = Metric(
    "hooktrace_job_exposed_mean_seconds", "hooktrace.job.exposed.mean", "s", "gauge",
    "Mean exposed communication over all ranks, of the last step of which it is known.", _MODEL,
)
JOB_EXPOSED_MAX = Metric(
    "hooktrace_job_exposed_max_seconds", "hooktrace.job.exposed.max", "s", "gauge",
    "Most exposed communication over all ranks, of the last step of which it is known.", _MODEL,
)
JOB_ARRIVAL_DELAY = Metric(
    "hooktrace_job_arrival_delay_seconds", "hooktrace.job.arrival.delay", "s", "gauge",
    "How long after the first rank the last one had its last bucket, where clocks are known.",
    _MODEL,
)
JOB_LAG_UNCERTAINTY = Metric(
    "hooktrace_job_arrival_uncertainty_seconds", "hooktrace.job.arrival.uncertainty", "s", "gauge",
    "By how much that may be wrong: twice the largest uncertainty of a rank's clock.", _MODEL,
)
JOB_LAST = Metric(
    "hooktrace_job_last_rank", "hooktrace.job.last.rank", "1", "gauge",
    "Number of the rank that came last; -1 where the clocks cannot tell.", _MODEL,
)
RUN = Metric(
    "hooktrace_run", "hooktrace.run", "1", "info",
    "The job that this process belongs to.", ("run_id", "world_size", "backend", "torch_version"),
)
# fmt: on

METRICS = tuple(value for value in globals().values() if isinstance(value, Metric))
"""Every metric, in the order of this file."""


def bucket_label(index: int) -> str:
    """Return the bounded label value of a bucket index."""
    return _BUCKET_LABELS[index] if index < MAX_BUCKET_LABELS else OTHER
