"""What a batch says of the metrics table: observations, by model.

    Batch --observe--> Group of each model: Columns of observations --> aggregates, instruments

Warm-up and probed steps, shadow calls and incomplete steps are counted, but give no timings; of a
probed bucket alone it is known what it waited, at least (``observed_waits.py``).
Steps, and what rarely happens, are counted from 0 on, since Prometheus' ``increase`` does not see a
series' first value.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from ..records import (
    AnomalyRecord,
    Batch,
    BucketRecord,
    ClockRecord,
    ErrorRecord,
    HangRecord,
    JobStepRecord,
    LayoutRecord,
    SkewRecord,
    StepRecord,
    StepSpread,
)
from ..records import metrics as m
from ..records.anomalies import ANOMALIES
from .hang_metrics import from_zero, of_hang
from .observed_waits import PendingSkews
from .unit_observations import UnitLabels, observe_units
from .unit_observations import observe_layout as observe_unit_layout

Labels = tuple[str, ...]

Observation = tuple[m.Metric, Labels, float]
"""A metric, label values in the order of ``metric.labels``, and one value."""

Column = tuple[m.Metric, Sequence[Labels], Sequence[float]]
"""Observations of one metric: the labels of each, and the value of each.

A bucket gives about seven: together they are added in two thirds of the time.
"""

Group = tuple[tuple[str, str] | None, list[Column]]
"""Observations of one model, named with its hook, whose labels begin with it; ``None``: of none."""


def observe(batch: Batch) -> list[Group]:
    """Return every observation of a batch, steps in order, totals of losses and failures last.

    Made once for all exporters of a drain.
    """
    if _last.batch is not batch:
        _last.batch, _last.groups = batch, list(_observe(batch))
    return _last.groups


class _Last(threading.local):
    """The batch that this thread's exporters were given last, and what it says."""

    batch: Batch | None = None
    groups: list[Group]

    def __init__(self) -> None:
        self.skews = PendingSkews()
        self.units = UnitLabels()


_last = _Last()


def _observe(batch: Batch) -> Iterator[Group]:
    run = batch.run
    labels = (run.run_id, str(run.world_size), run.backend, run.torch_version)
    yield None, [(m.RUN, [labels], [1.0])]
    _last.skews.add(batch.of(SkewRecord))
    for layout in batch.of(LayoutRecord):
        model = layout.model, layout.hook
        yield model, _columns(_observe_layout(layout, model))
    for step, buckets in batch.steps:
        model = step.model, step.hook
        yield model, _columns(_observe_step(step, model))
        yield model, _columns(_observe_sent(step, buckets, model))
        if step.sharded:
            yield model, list(observe_units(_last.units, buckets, model, timed=step.counts))
        else:
            yield model, list(_observe_buckets(buckets, model, timed=step.counts))
        if step.counts:
            yield model, [_observe_stages(buckets, model)]
        if step.settled and (waits := _last.skews.waits_ns(buckets)):
            of_stage = [(*model, "wait")] * len(waits)
            yield model, [(m.STAGE_DURATION, of_stage, [ns / 1e9 for ns in waits])]
    for anomaly in batch.of(AnomalyRecord):
        model = anomaly.model, anomaly.hook
        yield model, [(m.ANOMALIES, [(*model, anomaly.kind)], [1])]
    for hang in batch.of(HangRecord):
        yield (hang.model, hang.hook), _columns(of_hang(hang))
    for skew in batch.of(SkewRecord):
        if skew.uncertainty_ns is not None:
            model = skew.model, skew.hook
            yield model, [(m.ARRIVAL_LAG, [model], [skew.lag_ns / 1e9])]
    for job in batch.of(JobStepRecord):
        model = job.model, job.hook
        yield None, [(m.JOB_RANKS, [()], [job.world_size])]
        yield model, _columns(_observe_job(job.spread, model))
    yield None, _columns(_observe_process(batch))


def _columns(observations: Iterable[Observation]) -> list[Column]:
    return [(metric, [labels], [value]) for metric, labels, value in observations]


def _observe_process(batch: Batch) -> Iterator[Observation]:
    for clock in batch.of(ClockRecord)[-1:]:
        yield (m.CLOCK_OFFSET, (), clock.offset_ns / 1e9)
        yield (m.CLOCK_UNCERTAINTY, (), clock.uncertainty_ns / 1e9)
    for exporter, count in batch.failures.items():
        yield (m.EXPORTER_FAILURES, (exporter,), count)
    own = (f"{e}_{what}" for e in batch.failures for what in m.LOSSES_OF_EXPORTERS.get(e, ()))
    for reason, count in (dict.fromkeys((*m.LOSS_REASONS, *own), 0) | batch.losses).items():
        yield (m.RECORDS_LOST, (reason,), count)


def _observe_layout(layout: LayoutRecord, model: Labels) -> Iterator[Observation]:
    sharded = any(entry.unit is not None for entry in layout.buckets)
    if not sharded:
        yield (m.GENERATION, model, layout.generation)
    for kind in ANOMALIES.values():
        if kind.seen != "by check_hook":  # which are of no job; OpenTelemetry bounds what there is
            yield (m.ANOMALIES, (*model, kind.name), 0)
    yield from from_zero(model)
    for counter in (m.STEPS, m.WARMUP_STEPS, m.SHADOW_STEPS, m.INCOMPLETE_STEPS):
        yield (counter, model, 0)
    yield from observe_unit_layout(_last.units, layout, model)
    for entry in layout.buckets if not sharded else ():
        labels = (*model, m.bucket_label(entry.bucket))
        yield (m.GRADIENT_BYTES, labels, 0)
        if entry.bucket < m.MAX_BUCKET_LABELS:
            yield (m.BUCKET_SIZE, labels, entry.gradient_bytes)


def _observe_step(step: StepRecord, labels: Labels) -> Iterator[Observation]:
    yield (m.STEPS, labels, 1)
    yield (m.WARMUP_STEPS, labels, int(step.warmup))
    yield (m.SHADOW_STEPS, labels, int(step.shadow))
    yield (m.INCOMPLETE_STEPS, labels, int(not step.complete))
    if step.previous_period_ns is not None:  # of a step that counts, whether or not this one does
        yield (m.STEP_PERIOD, labels, step.previous_period_ns / 1e9)
    if not step.counts:
        return
    for metric, ns in ((m.EXPOSED, step.exposed_ns), (m.BUSY, step.busy_ns)):
        if ns is not None:
            yield (metric, labels, ns / 1e9)
    if step.bus_bytes is not None and step.wire_busy_ns is not None:  # one over the other: busbw
        yield (m.BUS_BYTES, labels, step.bus_bytes)
        yield (m.WIRE_BUSY, labels, step.wire_busy_ns / 1e9)


def _observe_sent(
    step: StepRecord, buckets: tuple[BucketRecord, ...], labels: Labels
) -> Iterator[Observation]:
    if step.wire_bytes is None or not step.settled:
        return
    if step.compression_ratio is not None:
        yield (m.COMPRESSION_RATIO, labels, step.compression_ratio)
    sums: Counter[tuple[str, str]] = Counter()
    for transfer in step.sent or [t for bucket in buckets for t in bucket.transfers]:
        sums[transfer.collective, transfer.dtype] += transfer.wire_bytes
    for kind, size in sums.items():
        yield (m.STEP_WIRE_BYTES, (*labels, *kind), size)


def _observe_buckets(
    buckets: Iterable[BucketRecord], model: Labels, *, timed: bool
) -> Iterator[Column]:
    labels = [(*model, m.bucket_label(b.bucket)) for b in buckets]
    yield m.GRADIENT_BYTES, labels, [b.gradient_bytes for b in buckets]
    # A counter has to see all steps, and what an opaque hook sends is known of few.
    yield _known(m.WIRE_BYTES, labels, [b.wire_bytes if b.sent is None else None for b in buckets])
    for own, bucket in zip(labels, buckets, strict=True):
        if bucket.error is not None and not bucket.shadow:
            yield from _columns(_observe_error(bucket.error, own))
    if timed:
        took = [b.duration_ns if b.exception is None else None for b in buckets]
        yield _known(m.BUCKET_DURATION, labels, [None if ns is None else ns / 1e9 for ns in took])


def _observe_stages(buckets: Iterable[BucketRecord], model: Labels) -> Column:
    in_stages = [
        b.stage_totals_ns() for b in buckets if b.exception is None and b.duration_ns is not None
    ]
    of_stage = {name: (*model, name) for totals in in_stages for name in totals}
    return (
        m.STAGE_DURATION,
        [of_stage[name] for totals in in_stages for name in totals],
        [ns / 1e9 for totals in in_stages for ns in totals.values()],
    )


def _known(metric: m.Metric, labels: list[Labels], values: list[float | None]) -> Column:
    """Return a column without what is not known."""
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        pairs = zip(labels, values, strict=True)
        labels = [own for own, value in pairs if value is not None]
    return metric, labels, known


def _observe_error(error: ErrorRecord, labels: Labels) -> Iterator[Observation]:
    if error.relative_l2 is not None:
        yield (m.COMPRESSION_ERROR, labels[:2], error.relative_l2)
        yield (m.BUCKET_ERROR, labels, error.relative_l2)
    if error.cosine is not None:
        yield (m.BUCKET_COSINE, labels, error.cosine)


def _observe_job(job: StepSpread, model: Labels) -> Iterator[Observation]:
    yield (m.JOB_REPORTING, model, job.ranks)
    if job.period is not None and job.period_mean_ns is not None:
        yield (m.JOB_PERIOD_MIN, model, job.period.least_ns / 1e9)
        yield (m.JOB_PERIOD_MEAN, model, job.period_mean_ns / 1e9)
        yield (m.JOB_PERIOD_MAX, model, job.period.most_ns / 1e9)
        yield (m.JOB_SLOWEST, model, job.period.most_rank)
    if job.exposed is not None and job.exposed_mean_ns is not None:
        yield (m.JOB_EXPOSED_MIN, model, job.exposed.least_ns / 1e9)
        yield (m.JOB_EXPOSED_MEAN, model, job.exposed_mean_ns / 1e9)
        yield (m.JOB_EXPOSED_MAX, model, job.exposed.most_ns / 1e9)
    if job.lag_ns is not None:
        yield (m.JOB_LAG, model, job.lag_ns / 1e9)
        yield (m.JOB_LAG_UNCERTAINTY, model, 2 * job.uncertainty_ns / 1e9)
        yield (m.JOB_LAST, model, -1 if job.last_rank is None else job.last_rank)
