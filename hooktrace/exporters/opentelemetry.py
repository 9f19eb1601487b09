"""Spans and metrics for OpenTelemetry backends.

    Batch --+-- steps that retention.py keeps --> StepTraces (otel_spans.py) --> a tracer
            +-- all of it --> aggregates or instruments (otel_metrics.py) --> readers

Tracer and readers are the application's, or the ones that otel_pipeline.py makes.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from ..records import AnomalyRecord, Batch, HangRecord, RunInfo
from .base import needing
from .observations import Observer
from .retention import DetailPolicy, Retention

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from .otel_metrics import Instruments, ReaderTotals
    from .otel_pipeline import Backend
    from .otel_spans import StepTraces

T = TypeVar("T")

_log = logging.getLogger(__name__)

_VERSION: str = sys.modules["hooktrace"].__version__

SPAN_RETENTION = Retention(first_steps=10, window_steps=1, window_every=50)
"""Which steps get spans: a span takes about 50 µs of processor time, and a bucket has five.

The first ones may come at once, and of 25 buckets each they fit the SDK's queue of 2,048 spans.
"""


class OpenTelemetryExporter:
    """Sends steps with their buckets and stages as spans, and the metrics table.

    A provider is, in this order: the argument, the application's global one, or a pipeline of
    hooktrace's own, configured by ``OTEL_*`` and made at the first export, when the rank is known.
    No global is ever set.  ``OTEL_SDK_DISABLED`` turns the own pipeline off.

    Spans are of the steps that ``retention`` keeps; the others are counted in the attribute
    ``hooktrace.left_out.steps`` of every step span.  An anomaly always has an event or a span, a
    hang a span when it is recorded and one when it is over.  All ranks keep or drop the same steps,
    but for those that were slow or broken on one, when the sampler decides by trace id, as
    ``OTEL_TRACES_SAMPLER``'s ratios do.  Where a backend lacks rank 0's span of a step the others
    show as orphans.

    Metrics are of all steps.  In the own pipeline they are totals, sent once an interval; in the
    application's provider observable instruments, and values of histograms recorded one by one.

    The rank stands in the resource of the own pipeline; in the application's, whose resource is not
    ours, as the attribute ``hooktrace.rank`` of every span and metric.

    ``lost`` counts the ``spans`` of the own pipeline that no backend got, and its
    ``metric_exports`` that failed; what may still arrive is not counted before ``close``, which
    logs it once.  What is given to the application's providers is counted by those, or not at all.

    ``close`` takes at most about ``close_seconds``.  It shuts the own pipeline down; the
    application's providers are only flushed.

    Raises ``ImportError`` when the SDK, or the exporter that ``OTEL_*`` asks for, is not installed,
    and ``ValueError`` when its protocol is unknown.
    """

    name = "opentelemetry"

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        spans: bool = True,
        metrics: bool = True,
        retention: Retention = SPAN_RETENTION,
        close_seconds: float = 5.0,
    ) -> None:
        with needing("opentelemetry-sdk", "OpenTelemetry"):
            from .otel_pipeline import find_exporters

        self._close_seconds = close_seconds
        self._patience_ms = int(700 * close_seconds)
        self._policy = DetailPolicy(retention)
        self._wanted = (spans, metrics)
        self._tracer_provider = tracer_provider if spans else None
        self._meter_provider = meter_provider if metrics else None
        self._find_providers()
        own_spans = spans and self._tracer_provider is None
        own_metrics = metrics and self._meter_provider is None
        self._span_exporters = find_exporters("traces") if own_spans else []
        self._metric_exporters = find_exporters("metrics") if own_metrics else []
        self._backends: list[Backend] = []
        self._traces: StepTraces | None = None
        self._observer = Observer(self.name)
        self._totals: list[ReaderTotals | Instruments] = []
        self._closers: list[Callable[[], object]] = []
        self._started = False
        self._closed = False

    @property
    def lost(self) -> dict[str, int]:
        """What no backend got, by kind."""
        counts: Counter[str] = Counter()
        for backend in self._backends:
            missing = backend.begun - backend.arrived if self._closed else backend.refused
            counts[backend.kind] += missing
        return dict(+counts)

    def export(self, batch: Batch) -> None:
        """Make spans and add up metrics of a batch; sending them is left to other threads."""
        if not self._started:
            self._started = True
            self._find_providers()  # the application may have set them since
            self._start_spans(batch.run)
            self._start_metrics(batch.run)
        if self._totals:
            columns = self._observer.observe(batch)
            for totals in self._totals:
                totals.add(columns, self._observer)
        if self._traces is not None:
            self._write_spans(self._traces, batch)

    def close(self) -> None:
        """Send what waits, within the deadline.  May be called again."""
        if self._closed:
            return
        deadline = time.monotonic() + self._close_seconds
        for backend in self._backends:
            backend.last_try()
        threads = [_in_thread(closer) for closer in self._closers]
        _join(threads, deadline - 0.3 * self._close_seconds)
        for backend in self._backends:
            _in_thread(backend.shutdown)  # ends the retries of one that is still sending
        _join(threads, deadline)
        for backend in self._backends:
            if backend.kind == "spans" and self._traces is not None:
                backend.begun = self._traces.written  # with those that a full queue dropped
        self._closed = True
        if spans := self.lost.get("spans"):
            _log.warning(
                "%d OpenTelemetry spans were lost; check that the backend is up, raise "
                "OTEL_BSP_MAX_QUEUE_SIZE, or keep fewer steps with OTEL_TRACES_SAMPLER",
                spans,
            )

    def _find_providers(self) -> None:
        """Take the application's global ones for what is wanted and was not given."""
        from opentelemetry import metrics, trace

        with_spans, with_metrics = self._wanted
        if with_spans and self._tracer_provider is None:
            self._tracer_provider = _if_set(trace.get_tracer_provider())
        if with_metrics and self._meter_provider is None:
            self._meter_provider = _if_set(metrics.get_meter_provider())

    def _start_spans(self, run: RunInfo) -> None:
        from .otel_pipeline import Backend, make_tracer_provider
        from .otel_spans import StepTraces

        if self._tracer_provider is not None:
            tracer = self._tracer_provider.get_tracer("hooktrace", _VERSION)
            self._traces = StepTraces(tracer, run, is_ours=False)
            self._closers.append(self._flush_of(self._tracer_provider))
        elif self._span_exporters:
            self._backends += [Backend(make(), "spans") for make in self._span_exporters]
            provider = make_tracer_provider(run, self._backends)
            tracer = provider.get_tracer("hooktrace", _VERSION)
            self._traces = StepTraces(tracer, run, is_ours=True)
            self._closers.append(provider.shutdown)

    def _start_metrics(self, run: RunInfo) -> None:
        from .otel_metrics import ReaderTotals, instruments_of
        from .otel_pipeline import make_reader, make_resource

        if self._meter_provider is not None:
            self._totals.append(instruments_of(self._meter_provider, _VERSION, run.rank))
            self._closers.append(self._flush_of(self._meter_provider))
        elif self._metric_exporters:
            resource = make_resource(run)
            for make in self._metric_exporters:
                reader = make_reader(make(), self._backends)
                self._totals.append(ReaderTotals(reader, resource, _VERSION))
                self._closers.append(partial(reader.shutdown, timeout_millis=self._patience_ms))

    def _flush_of(self, provider: Any) -> Callable[[], object]:
        """Return what flushes a provider of the application, where it can be."""
        flush = getattr(provider, "force_flush", dict)
        return partial(flush, timeout_millis=self._patience_ms)

    def _write_spans(self, traces: StepTraces, batch: Batch) -> None:
        found = batch.of(AnomalyRecord)
        anomalies: defaultdict[tuple[str, int], list[AnomalyRecord]] = defaultdict(list)
        for anomaly in found:
            anomalies[anomaly.model, anomaly.step].append(anomaly)
        self._policy.expect(found)
        for completed in chain.from_iterable(map(self._policy.choose, batch.steps)):
            of_step = anomalies.pop((completed[0].model, completed[0].step), [])
            traces.write(completed, of_step, self._policy.left_out["steps"])
        for anomaly in chain.from_iterable(anomalies.values()):
            traces.write_anomaly(anomaly)
        for hang in batch.of(HangRecord):
            traces.write_hang(hang)


def _if_set(provider: T) -> T | None:
    """Return a global provider, ``None`` for what the API has in place of one that was not set."""
    # By name: the class of one of the two placeholders is private.
    name = type(provider).__name__
    return None if name in ("ProxyTracerProvider", "_ProxyMeterProvider") else provider


def _in_thread(work: Callable[[], object]) -> threading.Thread:
    def guarded() -> None:
        try:
            work()
        except Exception as error:  # a backend's failure must not reach training
            _log.warning("OpenTelemetry was not flushed cleanly: %s", error)

    thread = threading.Thread(target=guarded, name="hooktrace-otel-close", daemon=True)
    thread.start()
    return thread


def _join(threads: Iterable[threading.Thread], deadline: float) -> None:
    """Wait until a moment of ``time.monotonic``."""
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
