"""The pipeline that ``OTEL_*`` sets up, and backends that take nothing."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import EntryPoints
from typing import Any

import pytest
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, MetricsData
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from hooktrace.exporters import OpenTelemetryExporter, otel_pipeline
from tests.exporters.records_sample import make_batch


def test_resource_names_the_rank_and_the_environment_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """The own resource says who records; OTEL_* values are kept where they differ."""
    run = make_batch(rank=1).run
    found = otel_pipeline.make_resource(run).attributes
    assert (found["service.name"], found["service.instance.id"]) == ("hooktrace", "sample/1")
    assert (found["hooktrace.rank"], found["hooktrace.world_size"]) == (1, 2)
    assert (found["host.name"], found["process.pid"]) == ("host-a", 1001)
    monkeypatch.setenv("OTEL_SERVICE_NAME", "trainer")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "host.name=node7,team=a")
    found = otel_pipeline.make_resource(run).attributes
    assert (found["service.name"], found["host.name"], found["team"]) == ("trainer", "node7", "a")
    assert found["hooktrace.rank"] == 1


def test_environment_selects_the_exporters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names and protocols pick entry points; ``none`` picks nothing."""
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console, none")
    [console] = otel_pipeline.find_exporters("traces")
    assert getattr(console, "__name__", "") == "ConsoleSpanExporter"
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    assert otel_pipeline.find_exporters("metrics") == []
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    assert ".http." in otel_pipeline.find_exporters("traces")[0].__module__
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc")
    assert ".grpc." in otel_pipeline.find_exporters("traces")[0].__module__


def test_wrong_environment_fails_in_the_constructor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing package, an unknown exporter and an unknown protocol end in their fix."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "carrier-pigeon")
    with pytest.raises(ValueError, match=r"carrier-pigeon.*set it to http/protobuf or grpc"):
        OpenTelemetryExporter()
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "papyrus")
    with pytest.raises(ImportError, match=r"papyrus.*set the variable to otlp, console or none"):
        OpenTelemetryExporter()
    monkeypatch.delenv("OTEL_TRACES_EXPORTER")
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
    monkeypatch.setattr(otel_pipeline, "entry_points", lambda **_: EntryPoints())
    with pytest.raises(ImportError, match=r"pip install 'hooktrace\[otlp\]'$"):
        OpenTelemetryExporter()
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    exporter = OpenTelemetryExporter()
    exporter.export(make_batch())
    exporter.close()


class _Refusing(SpanExporter):
    def __init__(self) -> None:
        self.accepts = False
        self.calls = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.calls += 1
        return SpanExportResult.SUCCESS if self.accepts else SpanExportResult.FAILURE


def test_dead_backend_is_asked_less_and_less(caplog: pytest.LogCaptureFixture) -> None:
    """After a failure batches are dropped for 5, 10, 20 s; one warning an outage; it recovers."""
    backend, now = _Refusing(), [0.0]
    deliveries = otel_pipeline.Backend(backend, "spans", lambda: now[0])
    span = ReadableSpan("x")
    asked_at = []
    for second in range(40):
        now[0] = float(second)
        before = backend.calls
        deliveries.export([span])
        asked_at += [second] * (backend.calls - before)
    assert asked_at == [0, 5, 15, 35]
    assert len(caplog.records) == 1
    backend.accepts, now[0] = True, 75.0
    assert deliveries.export([span, span]) is SpanExportResult.SUCCESS
    assert deliveries.export([span]) is SpanExportResult.SUCCESS
    assert (deliveries.arrived, deliveries.refused) == (3, 40)


class _Collector(MetricExporter):
    def __init__(self) -> None:
        super().__init__()
        self.accepts = False
        self.taken: list[MetricsData] = []

    def export(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **_: Any
    ) -> MetricExportResult:
        if not self.accepts:
            raise OSError("boom")
        self.taken.append(metrics_data)
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 30_000, **_: Any) -> None:
        pass


@pytest.mark.parametrize("accepts", [False, True])
def test_exports_of_metrics_that_fail_are_counted(
    accepts: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The last one, which ``close`` makes, is told from one that arrived; nothing is raised."""
    collector = _Collector()
    collector.accepts = accepts
    monkeypatch.setattr(otel_pipeline, "find_exporters", lambda _: [lambda: collector])
    exporter = OpenTelemetryExporter(spans=False)
    exporter.export(make_batch(steps=3))
    assert exporter.lost == {}
    exporter.close()
    assert exporter.lost == ({} if accepts else {"metric_exports": 1})
    assert len(collector.taken) == accepts
    warned = [r.getMessage() for r in caplog.records]
    assert [text for text in warned if "takes no metric exports (boom)" in text] == (
        [] if accepts else warned
    )
