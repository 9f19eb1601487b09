"""Steps as traces: one step of one model is one trace on all ranks.

    StepRecord, its buckets, anomalies, hangs --StepTraces--> spans of a tracer, whoever made it

The ids of the trace and of its root, rank 0's step span, are hashes of (run id, model, step); the
step spans of other ranks are the root's children.  Trainings of one process that are traced one
after another, as folds are, have ids of their own.  A bucket on a device has no stages here: its
span shows when the host enqueued it, and its times there, which have no place in wall-clock time,
are attributes.  What is not known of a record has no attribute.  Importing this imports
opentelemetry.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import chain, count
from typing import NamedTuple

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import Tracer as SdkTracer
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

from ..records import AnomalyRecord, BucketRecord, CompletedStep, HangRecord, RunInfo
from ..records.bucket import Stage
from .otel_attributes import (
    ANOMALY,
    RUN,
    STAGE,
    Attributes,
    known,
    of_bucket,
    of_exception,
    of_hang,
    of_step,
)

_SAMPLED_RANDOM = 0x03
"""W3C trace flags: sampled, and a trace id whose low 56 bits are uniform, as a hash's are."""


_used: dict[tuple[str, int, str], Iterator[int]] = {}
"""How often a run's model of that name has got spans in this process: once for each exporter."""


class StepIds(NamedTuple):
    """The ids that every rank computes for one step of one model: 128 and 64 bits, never 0."""

    trace_id: int
    root_span_id: int

    @classmethod
    def of(cls, run_id: str, model: str, step: int) -> StepIds:
        """Hash (run id, model, step).  The same job run again under the same id gets the same."""
        text = f"{run_id}\0{model}\0{step}".encode(errors="surrogateescape")
        digest = blake2b(text, digest_size=24, person=b"hooktrace step").digest()
        return cls(int.from_bytes(digest[:16]) or 1, int.from_bytes(digest[16:]) or 1)


class _RootIds(RandomIdGenerator):
    """Random ids, but the next span's are those of ``root``."""

    root: StepIds | None = None

    def generate_trace_id(self) -> int:
        return super().generate_trace_id() if self.root is None else self.root.trace_id

    def generate_span_id(self) -> int:
        root, self.root = self.root, None  # the last of the two to be asked for
        return super().generate_span_id() if root is None else root.root_span_id


class StepTraces:
    """Writes the steps of one process as spans of ``tracer``; ``written`` counts the sampled ones.

    Where it is not ``is_ours``, its resource does not say the run and the rank, so spans do.  An
    SDK's tracer is copied, so that the copy can be given the ids of roots and the application's
    keeps its own generator.  Any other tracer gets the trace id by a remote parent; there the root
    is a span that nobody exports.
    """

    def __init__(self, tracer: trace.Tracer, run: RunInfo, *, is_ours: bool) -> None:
        self.written = 0
        self._run = run
        self._where = {} if is_ours else known(run, RUN)
        self._rank: Attributes = {} if is_ours else {"hooktrace.rank": run.rank}
        self._tracer = tracer
        self._ids = _RootIds()
        self._turns: dict[str, int] = {}
        self._sharded: set[str] = set()
        self._sdk = copy.copy(tracer) if isinstance(tracer, SdkTracer) else None
        if self._sdk is not None:
            self._sdk.id_generator = self._ids
            self._tracer = self._sdk

    def write(
        self, completed: CompletedStep, anomalies: Sequence[AnomalyRecord], left_out: int
    ) -> None:
        """Write a step with its buckets and stages; ``left_out`` steps had no spans so far."""
        step, buckets = completed
        ids = self._ids_of(step.model, step.step)
        if step.sharded:
            self._sharded.add(step.model)
        attributes = self._where | of_step(step)
        attributes["hooktrace.left_out.steps"] = left_out
        is_root = self._run.rank == 0
        parent = self._root_context(ids) if is_root else self._below_root(ids, step.model)
        span = self._start(self._step_name(step.model), parent, step.first_ready_ns, attributes)
        if span.is_recording():
            inside = trace.set_span_in_context(span, Context())
            by_bucket: defaultdict[int, list[AnomalyRecord]] = defaultdict(list)
            for anomaly in anomalies:
                by_bucket[anomaly.bucket].append(anomaly)
            for bucket in buckets:
                self._write_bucket(bucket, inside, by_bucket.pop(bucket.bucket, ()))
            self._add_events(span, chain.from_iterable(by_bucket.values()))
            _fail(span, buckets, anomalies)
        self._end(span, step.done_ns)

    def write_anomaly(self, anomaly: AnomalyRecord) -> None:
        """Write a span of no length below the root: for an anomaly whose step is not at hand."""
        ids = self._ids_of(anomaly.model, anomaly.step)
        attributes = self._where | known(anomaly, ANOMALY)
        name = f"anomaly {anomaly.kind}"
        root = self._below_root(ids, anomaly.model)
        span = self._start(name, root, anomaly.time_ns, attributes)
        _fail(span, (), [anomaly])
        self._end(span, anomaly.time_ns)

    def write_hang(self, hang: HangRecord) -> None:
        """Write a span below the root as long as a hang took; of no length while it lasts."""
        ids = self._ids_of(hang.model, hang.step)
        root = self._below_root(ids, hang.model)
        name, start_ns = f"hang {hang.kind}", hang.since_wall_ns - self._run.wall_ns(0)
        span = self._start(name, root, start_ns, self._where | of_hang(hang))
        if hang.ended_after_ns is None:
            span.set_status(trace.Status(trace.StatusCode.ERROR, hang.message))
        self._end(span, start_ns + (hang.ended_after_ns or 0))

    def _ids_of(self, model: str, step: int) -> StepIds:
        if model not in self._turns:
            used = _used.setdefault((self._run.run_id, self._run.rank, model), count())
            self._turns[model] = next(used)
        turn = self._turns[model]
        return StepIds.of(self._run.run_id, f"{model}\0{turn}" if turn else model, step)

    def _write_bucket(
        self, bucket: BucketRecord, parent: Context, anomalies: Sequence[AnomalyRecord]
    ) -> None:
        attributes = self._rank | of_bucket(bucket)
        name = f"bucket {bucket.bucket}" if bucket.unit is None else str(bucket.unit)
        span = self._start(name, parent, bucket.ready_ns, attributes)
        self._add_events(span, anomalies)
        if bucket.exception is not None:
            at_ns = self._run.wall_ns(bucket.done_ns)
            span.add_event("exception", of_exception(bucket.exception), at_ns)
        _fail(span, [bucket], anomalies)
        if bucket.clock != "device":
            self._write_stages(bucket.stages, trace.set_span_in_context(span, Context()))
        self._end(span, bucket.done_ns)

    def _write_stages(self, stages: Iterable[Stage], parent: Context) -> None:
        for stage in stages:
            attributes = self._rank | known(stage, STAGE)
            if stage.derived:
                attributes["hooktrace.stage.derived"] = True
            self._end(self._start(stage.name, parent, stage.start_ns, attributes), stage.end_ns)

    def _start(
        self, name: str, parent: Context, start_ns: int, attributes: Attributes
    ) -> trace.Span:
        wall_ns = self._run.wall_ns(start_ns)
        span = self._tracer.start_span(name, parent, attributes=attributes, start_time=wall_ns)
        self.written += span.get_span_context().trace_flags.sampled
        return span

    def _end(self, span: trace.Span, end_ns: int) -> None:
        span.end(self._run.wall_ns(end_ns))

    def _add_events(self, span: trace.Span, anomalies: Iterable[AnomalyRecord]) -> None:
        for anomaly in anomalies:
            at_ns = self._run.wall_ns(anomaly.time_ns)
            span.add_event("hooktrace.anomaly", known(anomaly, ANOMALY), at_ns)

    def _root_context(self, ids: StepIds) -> Context:
        """Return a context in which the next span is the root of the step's trace."""
        if self._sdk is None:
            return self._below_root(ids)
        self._ids.root = ids
        return Context()

    def _step_name(self, model: str) -> str:
        return "sharded step" if model in self._sharded else "ddp step"

    def _below_root(self, ids: StepIds, model: str = "") -> Context:
        """Return a context in which rank 0's step span is the remote parent.

        A sampler follows its parent's decision, so the flag must be what rank 0's is.
        """
        flags, state = _SAMPLED_RANDOM, None
        if self._sdk is not None:
            result = self._sdk.sampler.should_sample(
                Context(), ids.trace_id, self._step_name(model)
            )
            flags = _SAMPLED_RANDOM if result.decision.is_sampled() else _SAMPLED_RANDOM - 1
            state = result.trace_state
        root = trace.SpanContext(
            ids.trace_id, ids.root_span_id, True, trace.TraceFlags(flags), state
        )
        return trace.set_span_in_context(trace.NonRecordingSpan(root), Context())


def _fail(
    span: trace.Span, buckets: Iterable[BucketRecord], anomalies: Iterable[AnomalyRecord]
) -> None:
    """Set the status from the first exception, or else anomaly, if there is one."""
    reasons = [bucket.exception for bucket in buckets if bucket.exception is not None]
    reasons += [anomaly.message for anomaly in anomalies]
    if reasons:
        span.set_status(trace.Status(trace.StatusCode.ERROR, reasons[0]))
