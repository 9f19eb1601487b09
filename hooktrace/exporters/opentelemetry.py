"""Spans and metrics for OpenTelemetry backends."""

from __future__ import annotations

import importlib.metadata
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ..records import AnomalyRecord, Batch, BucketRecord, RunInfo, StepRecord
from .otel_drafts import (
    Attributes,
    Draft,
    StepIds,
    draft_anomaly,
    draft_buckets,
    draft_step,
)
from .otel_metrics import Instruments
from .otel_pipeline import (
    MetricPipeline,
    SpanPipeline,
    find_exporters,
    make_resource,
    sdk_disabled,
)
from .otel_spans import ApiWriter, DirectWriter, SpanWriter

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

__all__ = ["OpenTelemetryExporter"]

_log = logging.getLogger(__name__)

StepKey = tuple[str, int]


class OpenTelemetryExporter:
    """Sends a span for every step, bucket and stage, and the metrics table as instruments.

    A provider is, in this order: the argument, the application's global one, or a pipeline of
    hooktrace's own, configured by ``OTEL_*`` and made at the first export, when the rank is known.
    No global is ever set.  ``OTEL_SDK_DISABLED`` turns the own pipeline off.

    *Traces.*  One step is one trace on all ranks: rank 0's step span is the root, the other ranks'
    step spans are its children, and each holds its buckets and their stages.  All ranks keep or
    drop the same steps when the sampler decides by trace id, as ``OTEL_TRACES_SAMPLER``'s ratios
    do.  Where a backend lacks rank 0's span (it was lost) the others show as its orphans.
    Durations of a bucket on a device are attributes, and its span is when the host enqueued it.
    Anomalies are events of their bucket or step, or a span of no length when they come later.

    *Where the rank stands.*  In the resource of the own pipeline; in the application's, whose
    resource is not ours, as the attribute ``hooktrace.rank`` of every span and metric.

    *Losses.*  ``spans_lost`` counts the spans of the own pipeline that no backend got; ``close``
    logs it once.  Spans given to the application's providers are counted by those, or not at all.

    ``close`` takes at most about ``close_seconds``.  It shuts the own pipeline down; the
    application's providers are only flushed.

    Raises ``ImportError`` when the exporter that ``OTEL_*`` asks for is not installed, and
    ``ValueError`` when its protocol is unknown.
    """

    name = "opentelemetry"

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        spans: bool = True,
        metrics: bool = True,
        close_seconds: float = 5.0,
    ) -> None:
        self._close_seconds = close_seconds
        self._wanted = (spans, metrics)
        self._tracer_provider = (tracer_provider or _global_tracers()) if spans else None
        self._meter_provider = (meter_provider or _global_meters()) if metrics else None
        own_spans = spans and self._tracer_provider is None and not sdk_disabled()
        own_metrics = metrics and self._meter_provider is None and not sdk_disabled()
        self._span_exporters = find_exporters("traces") if own_spans else []
        self._metric_exporters = find_exporters("metrics") if own_metrics else []
        self._spans: SpanPipeline | None = None
        self._metrics: MetricPipeline | None = None
        self._writer: SpanWriter | None = None
        self._instruments: Instruments | None = None
        self._step_common: Attributes = {}
        self._common: Attributes = {}
        self._started = False
        self._closed = False

    @property
    def spans_lost(self) -> int:
        """Spans of the own pipeline that are not delivered: exact after ``close``."""
        return self._spans.lost if self._spans is not None else 0

    @property
    def lost(self) -> dict[str, int]:
        """Spans that no backend got, once that is certain: after ``close``."""
        return {"spans": self.spans_lost} if self._closed and self.spans_lost else {}

    def export(self, batch: Batch) -> None:
        """Make spans and measurements of a batch; sending them is left to other threads."""
        if not self._started:
            self._start(batch.run)
        if self._instruments is not None:
            self._instruments.record(batch)
        if self._writer is not None:
            self._write(self._writer, batch)

    def close(self) -> None:
        """Send what waits, within the deadline.  May be called again."""
        if self._closed:
            return
        self._closed = True
        closers: list[Callable[[float], object]] = []
        closers += [own.close for own in (self._spans, self._metrics) if own is not None]
        theirs = (self._tracer_provider, self._meter_provider)
        closers += [_flusher(p) for p in theirs if hasattr(p, "force_flush") and self._started]
        threads = [
            threading.Thread(
                target=close, args=(self._close_seconds,), name="hooktrace-otel-close", daemon=True
            )
            for close in closers
        ]
        deadline = time.monotonic() + self._close_seconds
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        if self.spans_lost:
            _log.warning(
                "%d OpenTelemetry spans were lost; check that the backend is up, raise "
                "OTEL_BSP_MAX_QUEUE_SIZE, or keep fewer steps with OTEL_TRACES_SAMPLER",
                self.spans_lost,
            )

    def _start(self, run: RunInfo) -> None:
        self._started = True
        version = _version()
        spans, metrics = self._wanted
        # The application may have set its providers since the exporter was made.
        if spans and self._tracer_provider is None:
            self._tracer_provider = _global_tracers()
        if metrics and self._meter_provider is None:
            self._meter_provider = _global_meters()
        if self._tracer_provider is not None:
            self._writer = ApiWriter(self._tracer_provider.get_tracer("hooktrace", version))
            self._common = {"hooktrace.rank": run.rank}
            self._step_common = _rank_attributes(run)
        elif self._span_exporters:
            self._spans = SpanPipeline(self._span_exporters, make_resource(run))
            self._writer = DirectWriter(
                self._spans.sampler, self._spans.resource, version, self._spans.emit
            )
        if self._meter_provider is not None:
            meter = self._meter_provider.get_meter("hooktrace", version)
            self._instruments = Instruments(meter, {"hooktrace.rank": run.rank})
        elif self._metric_exporters:
            self._metrics = MetricPipeline(self._metric_exporters, make_resource(run), version)
            self._instruments = Instruments(self._metrics.meter, {})

    def _write(self, writer: SpanWriter, batch: Batch) -> None:
        run = batch.run
        present = {(step.model, step.step) for step, _ in batch.steps}
        anomalies: defaultdict[StepKey, list[AnomalyRecord]] = defaultdict(list)
        for anomaly in batch.of(AnomalyRecord):
            key = (anomaly.model, anomaly.step)
            if key in present:
                anomalies[key].append(anomaly)
            else:
                self._write_anomaly(writer, run, anomaly)
        for step, buckets in batch.steps:
            found = anomalies.get((step.model, step.step), [])
            self._write_step(writer, run, step, buckets, found)

    def _write_anomaly(self, writer: SpanWriter, run: RunInfo, anomaly: AnomalyRecord) -> None:
        ids = StepIds.of(run.run_id, anomaly.model, anomaly.step)
        draft = draft_anomaly(run, anomaly, self._step_common)
        writer.write(ids, run.rank, draft, _no_children, detached=True)

    def _write_step(
        self,
        writer: SpanWriter,
        run: RunInfo,
        step: StepRecord,
        buckets: tuple[BucketRecord, ...],
        anomalies: Iterable[AnomalyRecord],
    ) -> None:
        by_bucket: defaultdict[int, list[AnomalyRecord]] = defaultdict(list)
        for anomaly in anomalies:
            by_bucket[anomaly.bucket].append(anomaly)
        indices = {bucket.bucket for bucket in buckets}
        of_step = [a for index, found in by_bucket.items() if index not in indices for a in found]
        draft = draft_step(run, step, self._step_common, of_step)
        failed = [b.exception for b in buckets if b.exception is not None]
        messages = [a.message for found in by_bucket.values() for a in found]
        draft.error = next(iter(failed + messages), None)
        ids = StepIds.of(run.run_id, step.model, step.step)
        writer.write(
            ids, run.rank, draft, lambda: draft_buckets(run, buckets, self._common, by_bucket)
        )


def _rank_attributes(run: RunInfo) -> Attributes:
    return {
        "hooktrace.rank": run.rank,
        "hooktrace.local_rank": run.local_rank,
        "hooktrace.world_size": run.world_size,
        "hooktrace.run_id": run.run_id,
        "host.name": run.host,
    }


def _no_children() -> tuple[Draft, ...]:
    return ()


def _global_tracers() -> TracerProvider | None:
    """Return the application's tracer provider; ``None`` while it has set none."""
    from opentelemetry import trace

    provider = trace.get_tracer_provider()
    return None if isinstance(provider, trace.ProxyTracerProvider) else provider


def _global_meters() -> MeterProvider | None:
    """Return the application's meter provider; ``None`` while it has set none."""
    from opentelemetry import metrics

    provider = metrics.get_meter_provider()
    # The placeholder's class is private; it is the only provider of the API package but the no-op.
    is_placeholder = type(provider).__name__ == "_ProxyMeterProvider"
    return None if is_placeholder else provider


def _flusher(provider: Any) -> Callable[[float], object]:
    def flush(seconds: float) -> None:
        try:
            provider.force_flush(timeout_millis=int(1000 * seconds))
        except Exception as error:
            _log.warning("the application's %s did not flush: %s", type(provider).__name__, error)

    return flush


def _version() -> str:
    try:
        return importlib.metadata.version("hooktrace")
    except importlib.metadata.PackageNotFoundError:
        return ""
