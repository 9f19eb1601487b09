"""What batches say of the metrics table, in columns of observations.

    Batch --Observer.observe--> Columns, of a bounded number of models --> aggregates, instruments

Warm-up, checked and incomplete steps and join() dummy steps are counted, but give no timings.
Steps, and what rarely happens, are counted from 0 on, since Prometheus' ``increase`` does not see a
series' first value.  A sharded model (FSDP2) has more collectives than there is room for buckets,
and their numbers say little: they are counted by unit.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby

from ..records import (
    AnomalyRecord,
    AssignmentRecord,
    Batch,
    BucketLayout,
    BucketRecord,
    ClockRecord,
    HangRecord,
    JobStepRecord,
    SkewRecord,
    Stage,
    StepRecord,
    StepSpread,
    Transfer,
)
from ..records import metrics as m
from ..records.anomalies import ANOMALIES
from ..records.bucket import stage_lengths_ns
from ..records.hang import HANGS
from ..records.last_used import LastUsed
from ..records.losses import LOSSES, LOSSES_OF_EXPORTERS
from .model_labels import First, ModelLabels

Labels = tuple[str, ...]

Column = tuple[m.Metric, Sequence[Labels], Sequence[float]]
"""Observations of one metric: of each the label values, in the order of ``metric.labels``, and the
value.  A bucket gives about seven: together they are added in two thirds of the time."""

Group = tuple[tuple[str, str] | None, Iterable[Column]]
"""Observations of one model, named with its hook, whose labels begin with it; ``None``: of none."""


class Observer:
    """Reads the batches of one tracer for ``exporter``, whose name is for a warning.

    It holds what reaches from one batch to the next: the models and units that have labels, what
    each model's last step sent, and the totals so far, of which a batch says the increase.
    """

    def __init__(self, exporter: str) -> None:
        self._models = ModelLabels(exporter)
        self._units = First(m.MAX_UNITS)
        self._sent = LastUsed[Labels, Counter[Labels]](Counter, m.MAX_MODELS)
        self._counted: defaultdict[m.Metric, dict[str, int]] = defaultdict(lambda: defaultdict(int))

    def observe(self, batch: Batch) -> list[Column]:
        """Return every observation of the next batch, steps in order, losses and failures last."""
        return [column for group in self._groups(batch) for column in self._models.fold(*group)]

    def _groups(self, batch: Batch) -> Iterator[Group]:
        run = batch.run
        labels = (run.run_id, str(run.world_size), run.backend, run.torch_version)
        yield None, [(m.RUN, [labels], [1.0])]
        for layout in batch.of(AssignmentRecord):
            model = layout.model, layout.hook
            yield model, self._layout(layout, model)
        for model, run_of_steps in groupby(batch.steps, lambda one: (one[0].model, one[0].hook)):
            steps = list(run_of_steps)
            yield model, _observe_steps([step for step, _ in steps], model)
            for step, buckets in steps:
                yield model, _observe_sent(step, buckets, model, self._sent.of(model))
                labels_of = [self._labels_of(bucket, model) for bucket in buckets]
                yield model, _observe_buckets(step, buckets, model, labels_of)
            timed = [bucket for step, buckets in steps if step.counts for bucket in buckets]
            yield model, _observe_stages(timed, model)
        for anomaly in batch.of(AnomalyRecord):
            model = anomaly.model, anomaly.hook
            yield model, [(m.ANOMALIES, [(*model, anomaly.kind)], [1])]
        for hang in batch.of(HangRecord):
            model = hang.model, hang.hook
            yield model, _observe_hang(hang, model)
        for skew in batch.of(SkewRecord):
            if skew.uncertainty_ns is not None:
                model = skew.model, skew.hook
                yield model, [(m.ARRIVAL_DELAY, [model], [skew.arrival_delay_ns / 1e9])]
        for job in batch.of(JobStepRecord):
            model = job.model, job.hook
            yield None, [(m.JOB_RANKS, [()], [job.world_size])]
            yield model, _observe_job(job.spread, model)
        yield None, self._process(batch)

    def _process(self, batch: Batch) -> Iterator[Column]:
        for clock in batch.of(ClockRecord)[-1:]:
            yield m.CLOCK_OFFSET, [()], [clock.offset_ns / 1e9]
            yield m.CLOCK_UNCERTAINTY, [()], [clock.uncertainty_ns / 1e9]
        own = (f"{e}_{what}" for e in batch.failures for what in LOSSES_OF_EXPORTERS.get(e, ()))
        losses = dict.fromkeys((*LOSSES, *own), 0) | batch.losses
        for metric, totals in ((m.EXPORTER_FAILURES, batch.failures), (m.RECORDS_LOST, losses)):
            counted = self._counted[metric]
            labels = [(label,) for label in totals]
            yield metric, labels, [total - counted[label] for label, total in totals.items()]
            counted.update(totals)

    def _layout(self, layout: AssignmentRecord, model: Labels) -> Iterator[Column]:
        if all(entry.unit is None for entry in layout.buckets):
            yield m.REBUILD, [model], [layout.rebuild]
        for kind in ANOMALIES.values():
            # Those that check_hook sees are of no job; OpenTelemetry bounds what there is.
            if kind.seen != "by check_hook":
                yield m.ANOMALIES, [(*model, kind.name)], [0]
        for hang in HANGS:
            yield m.HANGS, [(*model, hang)], [0]
        yield m.HANG_START, [model], [0]
        for counter in (m.STEPS, m.WARMUP_STEPS, m.JOIN_DUMMY_STEPS, m.INCOMPLETE_STEPS):
            yield counter, [model], [0]
        for entry in layout.buckets:
            labels = self._labels_of(entry, model)
            yield m.GRADIENT_BYTES if entry.unit is None else m.UNIT_PAYLOAD, [labels], [0]
            if entry.unit is None and entry.bucket < m.MAX_BUCKET_LABELS:
                yield m.BUCKET_SIZE, [labels], [entry.gradient_bytes]

    def _labels_of(self, bucket: BucketRecord | BucketLayout, model: Labels) -> Labels:
        unit = bucket.unit
        if unit is None:
            return (*model, m.bucket_label(bucket.bucket))
        name = unit.name if self._units.has((model, unit.name)) else m.OTHER
        return (*model, name, unit.collective, unit.phase)


def _observe_hang(hang: HangRecord, model: Labels) -> Iterator[Column]:
    """Yield what a record says; one of an end counts for nothing, and nothing goes on any more."""
    lasts = hang.ended_after_ns is None
    yield m.HANGS, [(*model, hang.kind)], [int(lasts)]
    yield m.HANG_START, [model], [hang.since_wall_ns / 1e9 if lasts else 0]


def _observe_steps(steps: Sequence[StepRecord], model: Labels) -> Iterator[Column]:
    own = [model] * len(steps)
    yield m.STEPS, own, [1] * len(steps)
    yield m.WARMUP_STEPS, own, [int(step.warmup) for step in steps]
    yield m.JOIN_DUMMY_STEPS, own, [int(step.join_dummy) for step in steps]
    yield m.INCOMPLETE_STEPS, own, [int(not step.complete) for step in steps]
    # Of a step that counts, whether or not the one after it does.
    yield _known(m.STEP_PERIOD, own, [step.previous_period_ns for step in steps], 1e9)
    timed = [step for step in steps if step.counts]
    own = [model] * len(timed)
    yield _known(m.EXPOSED, own, [step.exposed_ns for step in timed], 1e9)
    yield _known(m.COMMUNICATION, own, [step.communication_ns for step in timed], 1e9)
    # One over the other is the bus bandwidth.
    sent = [s for s in timed if s.bus_bytes is not None and s.wire_in_flight_ns is not None]
    own = [model] * len(sent)
    yield _known(m.BUS_BYTES, own, [step.bus_bytes for step in sent])
    yield _known(m.WIRE_IN_FLIGHT, own, [step.wire_in_flight_ns for step in sent], 1e9)


def _observe_sent(
    step: StepRecord, buckets: tuple[BucketRecord, ...], labels: Labels, sums: Counter[Labels]
) -> Iterator[Column]:
    """Yield what a step sent; 0 of what ``sums``, of the step before, has and this one has not."""
    if step.wire_bytes is None or not step.settled:
        return
    if step.compression_ratio is not None:
        yield m.COMPRESSION_RATIO, [labels], [step.compression_ratio]
    for kind in sums:
        sums[kind] = 0
    sent: list[Sequence[Stage | Transfer]]
    sent = [b.timed_stages if b.sent is None else b.sent for b in buckets]
    for one in chain.from_iterable([step.sent] if step.sent else sent):
        if one.wire_bytes is not None and one.dtype is not None:
            sums[one.collective or "unknown", one.dtype] += one.wire_bytes
    yield m.STEP_WIRE_BYTES, [(*labels, *kind) for kind in sums], list(sums.values())


_OF_BUCKETS = (m.GRADIENT_BYTES, m.WIRE_BYTES, m.BUCKET_ERROR, m.BUCKET_COSINE, m.BUCKET_DURATION)
_OF_UNITS = (m.UNIT_PAYLOAD, m.UNIT_WIRE, m.UNIT_ERROR, m.UNIT_COSINE, m.UNIT_DURATION)


def _observe_buckets(
    step: StepRecord, buckets: Sequence[BucketRecord], model: Labels, labels: Sequence[Labels]
) -> Iterator[Column]:
    """Yield what is known of buckets, or of units, whose calls in several micro-steps add up."""
    size, wire, relative, cosine, duration = _OF_UNITS if step.sharded else _OF_BUCKETS
    yield size, labels, [b.gradient_bytes for b in buckets]
    yield _known(wire, labels, [b.wire_bytes for b in buckets])
    errors = [None if b.join_dummy else b.error for b in buckets]
    if any(errors):
        norms = [None if error is None else error.relative_l2 for error in errors]
        yield _known(m.COMPRESSION_ERROR, [model] * len(buckets), norms)
        yield _known(relative, labels, norms)
        yield _known(cosine, labels, [None if e is None else e.cosine for e in errors])
    if step.counts:
        took_ns = [b.duration_ns if b.exception is None else None for b in buckets]
        yield _known(duration, labels, took_ns, 1e9)
    if step.counts and step.sharded:
        waited_ns = [b.exposed_ns if b.exception is None else None for b in buckets]
        yield _known(m.UNIT_EXPOSED, labels, waited_ns, 1e9)


def _observe_stages(buckets: Iterable[BucketRecord], model: Labels) -> Iterator[Column]:
    for name, lengths_ns in stage_lengths_ns(buckets).items():
        yield _known(m.STAGE_DURATION, [(*model, name)] * len(lengths_ns), lengths_ns, 1e9)


def _known(
    metric: m.Metric, labels: Sequence[Labels], values: Sequence[float | None], unit: float = 1
) -> Column:
    """Return a column without what is not known; ``unit``: that of the metric in the values'."""
    known = [value / unit for value in values if value is not None]
    if len(known) < len(values):
        pairs = zip(labels, values, strict=True)
        labels = [own for own, value in pairs if value is not None]
    return metric, labels, known


def _observe_job(job: StepSpread, model: Labels) -> Iterator[Column]:
    yield m.JOB_REPORTING, [model], [job.ranks]
    if job.period is not None and job.period_mean_ns is not None:
        yield m.JOB_PERIOD_MIN, [model], [job.period.least_ns / 1e9]
        yield m.JOB_PERIOD_MEAN, [model], [job.period_mean_ns / 1e9]
        yield m.JOB_PERIOD_MAX, [model], [job.period.most_ns / 1e9]
        yield m.JOB_SLOWEST, [model], [job.period.most_rank]
    if job.exposed is not None and job.exposed_mean_ns is not None:
        yield m.JOB_EXPOSED_MIN, [model], [job.exposed.least_ns / 1e9]
        yield m.JOB_EXPOSED_MEAN, [model], [job.exposed_mean_ns / 1e9]
        yield m.JOB_EXPOSED_MAX, [model], [job.exposed.most_ns / 1e9]
    if job.arrival_delay_ns is not None:
        yield m.JOB_ARRIVAL_DELAY, [model], [job.arrival_delay_ns / 1e9]
        yield m.JOB_LAG_UNCERTAINTY, [model], [2 * job.uncertainty_ns / 1e9]
        yield m.JOB_LAST, [model], [-1 if job.last_rank is None else job.last_rank]
