"""Where the application has no provider: the SDK's own parts, set up from ``OTEL_*``.

    tracer --> TracerProvider --> BatchSpanProcessor --> Backend --> what OTEL_TRACES_EXPORTER names
    aggregates --> PeriodicExportingMetricReader --> Backend --> what OTEL_METRICS_EXPORTER names

Nothing here touches a global provider.  Spans and metrics leave in threads of the SDK; a backend
that is down costs those threads time, never the drain.  Importing this imports opentelemetry.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable
from importlib.metadata import entry_points
from typing import Any, Literal

from opentelemetry.sdk.metrics.export import (
    MetricExportResult,
    MetricReader,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult

from ..records import RunInfo

_log = logging.getLogger(__name__)

_PROTOCOLS = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}

_FIRST_PAUSE_SECONDS = 5.0
_LONGEST_PAUSE_SECONDS = 60.0


class Backend:
    """The exporter of one backend, which counts what was ``begun``, ``arrived`` or ``refused``.

    After a failure it drops what comes for 5 s, then twice as long, up to 60 s, instead of letting
    every batch wait for its own retries and write its own lines to the log.
    """

    def __init__(
        self,
        exporter: Any,
        kind: Literal["spans", "metric_exports"],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.kind = kind
        self._exporter = exporter
        self._results: type[SpanExportResult | MetricExportResult] = (
            SpanExportResult if kind == "spans" else MetricExportResult
        )
        self._clock = clock
        self._pause_seconds = 0.0
        self._resume_at = 0.0
        self._stopped = False
        self.begun = self.arrived = self.refused = 0

    def __getattr__(self, name: str) -> Any:
        """What a reader asks its exporter for: the temporality, ``force_flush``."""
        return getattr(self._exporter, name)

    def export(self, data: Any, **options: Any) -> SpanExportResult | MetricExportResult:
        """Hand on a sequence of spans, or all metrics as one; never raises."""
        count = len(data) if self.kind == "spans" else 1
        self.begun += count
        result = self._try(data, options)
        if result is self._results.SUCCESS:
            self.arrived += count
        else:
            self.refused += count
        return result

    def _try(self, data: Any, options: dict[str, Any]) -> SpanExportResult | MetricExportResult:
        if self._stopped or self._clock() < self._resume_at:
            return self._results.FAILURE
        reason, result = "", self._results.FAILURE
        try:
            result = self._exporter.export(data, **options)
        except Exception as error:  # an exporter may raise instead of returning FAILURE
            reason = f" ({error})"
        if result is self._results.SUCCESS:
            self._pause_seconds = 0.0
        else:
            self._pause(reason)
        return result

    def _pause(self, reason: str) -> None:
        if not self._pause_seconds:
            _log.warning(
                "the OpenTelemetry backend takes no %s%s; they are dropped and counted until "
                "it does: check OTEL_EXPORTER_OTLP_ENDPOINT",
                self.kind.replace("_", " "),
                reason,
            )
        longer = max(_FIRST_PAUSE_SECONDS, 2 * self._pause_seconds)
        self._pause_seconds = min(_LONGEST_PAUSE_SECONDS, longer)
        self._resume_at = self._clock() + self._pause_seconds

    def last_try(self) -> None:
        """Let the next batch through even in a pause."""
        self._resume_at = 0.0

    def shutdown(self, **_options: Any) -> None:
        """Stop, and wake the exporter from its retries."""
        if not self._stopped:
            self._stopped = True
            self._exporter.shutdown()


def make_tracer_provider(run: RunInfo, backends: Iterable[Backend]) -> TracerProvider:
    """Return a provider that batches spans for each backend, as ``OTEL_BSP_*`` says."""
    provider = TracerProvider(resource=make_resource(run), shutdown_on_exit=False)
    for backend in backends:
        provider.add_span_processor(BatchSpanProcessor(backend))  # type: ignore[arg-type]
    return provider


def make_reader(exporter: Any, backends: list[Backend]) -> MetricReader:
    """Return a reader that exports every ``OTEL_METRIC_EXPORT_INTERVAL`` ms (60,000) to a backend.

    An exporter that is a reader itself, as OpenTelemetry's for Prometheus, asks when it will.
    """
    if isinstance(exporter, MetricReader):
        return exporter
    backends.append(Backend(exporter, "metric_exports"))
    return PeriodicExportingMetricReader(backends[-1])  # type: ignore[arg-type]


def make_resource(run: RunInfo) -> Resource:
    """Return a resource that says which process of which job this is.

    ``OTEL_SERVICE_NAME`` and ``OTEL_RESOURCE_ATTRIBUTES`` win over every attribute of it.
    """
    fields = ("run_id", "rank", "local_rank", "world_size", "backend", "torch_version")
    ours = Resource.create(
        {
            "service.name": "hooktrace",
            "service.instance.id": f"{run.run_id}/{run.rank}",
            "host.name": run.host,
            "process.pid": run.pid,
            **{f"hooktrace.{field}": getattr(run, field) for field in fields},
        }
    )
    return ours.merge(OTELResourceDetector().detect())


def find_exporters(signal: Literal["traces", "metrics"]) -> list[Callable[[], Any]]:
    """Return the exporter classes that ``OTEL_TRACES_EXPORTER`` / ``OTEL_METRICS_EXPORTER`` name.

    The names are entry points of ``opentelemetry_traces_exporter`` and
    ``opentelemetry_metrics_exporter``, separated by commas; ``none`` is no exporter and ``otlp``
    the default.  Its protocol is ``OTEL_EXPORTER_OTLP_PROTOCOL`` or the one of the signal, and
    ``http/protobuf`` by default: the specification's default, and one that survives the forks of a
    data loader, which gRPC may not.  With ``OTEL_SDK_DISABLED`` there is none.

    Raises ``ImportError`` when an exporter is not installed and ``ValueError`` for an unknown
    protocol.
    """
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return []
    variable = f"OTEL_{signal.upper()}_EXPORTER"
    names = [name.strip() for name in (os.environ.get(variable) or "otlp").split(",")]
    return [_load(signal, name, variable) for name in names if name and name.lower() != "none"]


def _load(signal: str, name: str, variable: str) -> Callable[[], Any]:
    entry_point = _otlp_name(signal) if name == "otlp" else name
    for found in entry_points(group=f"opentelemetry_{signal}_exporter", name=entry_point):
        make: Callable[[], Any] = found.load()
        return make
    fix = "install that package, or set the variable to otlp, console or none"
    if name.startswith("otlp"):
        fix = "pip install 'hooktrace[otlp]'"
    raise ImportError(
        f"{variable} asks for {entry_point!r}, which no installed package offers; {fix}"
    )


def _otlp_name(signal: str) -> str:
    variables = (f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    variable = next((name for name in variables if os.environ.get(name, "").strip()), variables[-1])
    protocol = os.environ.get(variable, "").strip() or "http/protobuf"
    if protocol not in _PROTOCOLS:
        known = " or ".join(_PROTOCOLS)
        raise ValueError(f"{variable} is {protocol!r}, which is not supported; set it to {known}")
    return _PROTOCOLS[protocol]
