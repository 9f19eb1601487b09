"""hooktrace's own OpenTelemetry pipeline, set up from ``OTEL_*`` where the application set none.

Nothing here touches a global provider.  Spans and metrics leave in threads of the SDK; a backend
that is down costs those threads time, never the drain.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Literal

from ..records import RunInfo

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
    from opentelemetry.sdk.trace.sampling import Sampler

__all__ = ["MetricPipeline", "SpanPipeline", "find_exporters", "make_resource", "sdk_disabled"]

_log = logging.getLogger(__name__)

Signal = Literal["traces", "metrics"]

_PROTOCOLS = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}

_FIRST_PAUSE_SECONDS = 5.0
_LONGEST_PAUSE_SECONDS = 60.0


def sdk_disabled() -> bool:
    """Whether ``OTEL_SDK_DISABLED`` is set."""
    return os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


def find_exporters(signal: Signal) -> list[Callable[[], Any]]:
    """Return the exporter classes that ``OTEL_TRACES_EXPORTER`` / ``OTEL_METRICS_EXPORTER`` name.

    The names are entry points of ``opentelemetry_traces_exporter`` and
    ``opentelemetry_metrics_exporter``, separated by commas; ``none`` is no exporter and ``otlp``
    the default.  Its protocol is ``OTEL_EXPORTER_OTLP_PROTOCOL`` or the one of the signal, and
    ``http/protobuf`` by default: the specification's default, and one that survives the forks of a
    data loader, which gRPC may not.

    Raises ``ImportError`` when an exporter is not installed and ``ValueError`` for an unknown
    protocol.
    """
    variable = f"OTEL_{signal.upper()}_EXPORTER"
    names = [name.strip() for name in (os.environ.get(variable) or "otlp").split(",")]
    wanted = [name for name in names if name and name.lower() != "none"]
    return [_load(signal, variable, _entry_point_name(signal, name)) for name in wanted]


def _entry_point_name(signal: Signal, name: str) -> str:
    if name != "otlp":
        return name
    variables = (f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    for variable in variables:
        protocol = os.environ.get(variable, "").strip()
        if not protocol:
            continue
        if protocol not in _PROTOCOLS:
            known = " or ".join(_PROTOCOLS)
            raise ValueError(
                f"{variable} is {protocol!r}, which is not supported; set it to {known}"
            )
        return _PROTOCOLS[protocol]
    return _PROTOCOLS["http/protobuf"]


def _load(signal: Signal, variable: str, name: str) -> Callable[[], Any]:
    group = f"opentelemetry_{signal}_exporter"
    for entry_point in entry_points(group=group, name=name):
        found: Callable[[], Any] = entry_point.load()
        return found
    if name.startswith("otlp"):
        raise ImportError(
            f"the OpenTelemetry exporter {name!r} for {signal} is not installed: "
            "pip install 'hooktrace[otlp]'"
        )
    raise ImportError(
        f"{variable} names {name!r}, but no installed package offers it; "
        "install that package, or set the variable to otlp, console or none"
    )


def make_resource(run: RunInfo) -> Resource:
    """Return a resource that says which process of which job this is.

    ``OTEL_SERVICE_NAME`` and ``OTEL_RESOURCE_ATTRIBUTES`` win over every attribute of it.
    """
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    ours = Resource.create(
        {
            "service.name": "hooktrace",
            "service.instance.id": f"{run.run_id}/{run.rank}",
            "host.name": run.host,
            "process.pid": run.pid,
            "hooktrace.run_id": run.run_id,
            "hooktrace.rank": run.rank,
            "hooktrace.local_rank": run.local_rank,
            "hooktrace.world_size": run.world_size,
            "hooktrace.backend": run.backend,
            "hooktrace.torch_version": run.torch_version,
        }
    )
    return ours.merge(OTELResourceDetector().detect())


class _Deliveries:
    """A ``SpanExporter`` around another: counts what arrived, and pauses while nothing does.

    After a failure it drops spans for 5 s, then twice as long, up to 60 s, instead of letting
    every batch wait for its own retries and write its own lines to the log.
    """

    def __init__(self, exporter: SpanExporter, clock: Callable[[], float]) -> None:
        from opentelemetry.sdk.trace.export import SpanExportResult

        self._results = SpanExportResult
        self._exporter = exporter
        self._clock = clock
        self._pause_seconds = 0.0
        self._resume_at = 0.0
        self._stopped = False
        self.delivered = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if self._stopped or self._clock() < self._resume_at:
            return self._results.FAILURE
        try:
            result = self._exporter.export(spans)
        except Exception as error:  # an exporter may raise instead of returning FAILURE
            self._pause(f" ({error})")
            return self._results.FAILURE
        if result is self._results.SUCCESS:
            self.delivered += len(spans)
            self._pause_seconds = 0.0
        else:
            self._pause("")
        return result

    def _pause(self, reason: str) -> None:
        longer = max(_FIRST_PAUSE_SECONDS, 2 * self._pause_seconds)
        if not self._pause_seconds:
            _log.warning(
                "the OpenTelemetry backend takes no spans%s; they are dropped and counted until "
                "it does: check OTEL_EXPORTER_OTLP_ENDPOINT",
                reason,
            )
        self._pause_seconds = min(_LONGEST_PAUSE_SECONDS, longer)
        self._resume_at = self._clock() + self._pause_seconds

    def last_try(self) -> None:
        """Let the next batch through even in a pause."""
        self._resume_at = 0.0

    def shutdown(self) -> None:
        """Stop, and wake the exporter from its retries."""
        if not self._stopped:
            self._stopped = True
            self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        return self._exporter.force_flush(timeout_millis)


class SpanPipeline:
    """Batches spans for each exporter in a thread of its own, as ``OTEL_BSP_*`` says.

    ``lost`` counts spans that no backend got, per exporter and added up: dropped because the queue
    was full, refused, or still unsent after ``close``.  Before ``close`` the spans that wait are
    not lost yet.  What a backend throws away after it said yes cannot be known here.
    """

    def __init__(
        self,
        factories: Sequence[Callable[[], Any]],
        resource: Resource,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        # Only a provider reads OTEL_TRACES_SAMPLER; spans do not go through it.
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self.sampler: Sampler = provider.sampler
        self.resource = resource
        self._deliveries = [_Deliveries(factory(), clock) for factory in factories]
        self._processors = [BatchSpanProcessor(d) for d in self._deliveries]  # type: ignore[arg-type]
        self.emitted = 0

    def emit(self, span: ReadableSpan) -> None:
        """Queue a finished span for every exporter; never waits."""
        self.emitted += 1
        for processor in self._processors:
            processor.on_end(span)

    @property
    def lost(self) -> int:
        """Spans handed in and not delivered, over all exporters; exact after ``close``."""
        return sum(self.emitted - d.delivered for d in self._deliveries)

    def close(self, seconds: float) -> None:
        """Send what waits, for at most about ``seconds``; the rest is lost and counted."""
        for delivery in self._deliveries:
            delivery.last_try()
        threads = [_start(processor.shutdown) for processor in self._processors]
        _join(threads, 0.7 * seconds)
        for delivery in self._deliveries:
            _start(delivery.shutdown)
        _join(threads, 0.3 * seconds)


class MetricPipeline:
    """A meter provider that exports every ``OTEL_METRIC_EXPORT_INTERVAL`` ms (60,000)."""

    def __init__(
        self, factories: Sequence[Callable[[], Any]], resource: Resource, version: str
    ) -> None:
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader

        self._exporters = [factory() for factory in factories]
        readers: list[MetricReader] = [
            exporter
            if isinstance(exporter, MetricReader)
            else PeriodicExportingMetricReader(exporter)
            for exporter in self._exporters
        ]
        self._provider = MeterProvider(readers, resource=resource, shutdown_on_exit=False)
        self.meter: Meter = self._provider.get_meter("hooktrace", version)

    def close(self, seconds: float) -> None:
        """Export a last time, for at most about ``seconds``."""
        thread = _start(lambda: self._provider.shutdown(timeout_millis=700 * seconds))
        _join([thread], seconds)


def _start(run: Callable[[], object]) -> threading.Thread:
    def guarded() -> None:
        try:
            run()
        except Exception as error:  # a backend's failure must not reach training
            _log.warning("the OpenTelemetry pipeline did not shut down cleanly: %s", error)

    thread = threading.Thread(target=guarded, name="hooktrace-otel-close", daemon=True)
    thread.start()
    return thread


def _join(threads: Sequence[threading.Thread], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
