"""The OpenTelemetry exporter: which steps have spans, their ids, whose providers are used.

What spans say is in ``golden/``.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import EntryPoints
from typing import Any
from unittest.mock import Mock

import pytest
from msgspec.structs import replace
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricExportResult
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import hooktrace
from hooktrace.exporters import OpenTelemetryExporter, Retention, otel_pipeline
from hooktrace.exporters.otel_attributes import of_hang
from hooktrace.exporters.otel_spans import StepIds
from hooktrace.records import RankStacks
from tests.exporters.conftest import Export
from tests.exporters.records_sample import (
    MODEL,
    checked,
    make_anomaly,
    make_batch,
    make_hang,
    make_step,
)


def context(span: ReadableSpan) -> trace.SpanContext:
    found = span.get_span_context()
    assert found is not None
    return found


def steps_of(spans: Sequence[ReadableSpan], name: str = "step") -> list[Any]:
    """Return an attribute of the spans of steps."""
    own = [span.attributes or {} for span in spans if span.name == "ddp step"]
    return [attributes[f"hooktrace.{name}"] for attributes in own]


def test_ranks_share_one_trace_a_step(export: Export) -> None:
    """Rank 0's step span is the root; rank 1's is its child, with a remote parent."""
    spans = export(make_batch(rank=0, steps=1), make_batch(rank=1, steps=1))
    first, second = [span for span in spans if span.name == "ddp step"]
    ids = StepIds.of("sample", MODEL, 0)
    assert first.parent is None
    assert context(first).trace_id == context(second).trace_id == ids.trace_id
    assert context(first).span_id == ids.root_span_id != context(second).span_id
    assert second.parent is not None
    assert (second.parent.span_id, second.parent.is_remote) == (ids.root_span_id, True)
    again = [context(span).trace_id for span in export(make_batch(steps=1))]  # the next fold's
    assert len({ids.trace_id, *again}) == 2
    assert len({context(span).span_id for span in spans}) == len(spans) == 22


def test_ranks_sample_the_same_steps(export: Export) -> None:
    """Under a ratio sampler both ranks keep the same half of the steps, whole or not at all."""
    batches = [make_batch(rank=rank, steps=40) for rank in (0, 1)]
    spans = export(*batches, ratio=0.5, retention=Retention(window_every=1))
    steps = [span for span in spans if span.name == "ddp step"]
    roots = {context(span).trace_id for span in steps if span.parent is None}
    others = {context(span).trace_id for span in steps if span.parent is not None}
    assert roots == others
    assert 0 < len(roots) < 40
    assert len(spans) == 11 * 2 * len(roots)


def test_ranks_keep_the_same_share_of_steps(export: Export) -> None:
    """The first of a rebuild, one of so many by number, and the checked; by default few."""
    rules = Retention(first_steps=3, window_steps=1, window_every=10)
    batches = [make_batch(rank=rank, steps=34) for rank in (0, 1)]
    batches = [replace(b, steps=(*b.steps, checked(make_step(57)))) for b in batches]
    spans = export(*batches, retention=rules)
    assert steps_of(spans) == 2 * [0, 1, 2, 10, 20, 30, 57]
    assert len(spans) == 2 * 7 * 11
    assert steps_of(spans, "left_out.steps") == 2 * [0, 0, 0, 7, 16, 25, 28]
    assert steps_of(export(make_batch(steps=120, bucket_count=1))) == [*range(10), 50, 100]


def test_an_anomaly_of_a_step_without_spans_has_one(export: Export) -> None:
    """What went wrong is never left out, also where so much goes wrong that steps are."""
    rules = Retention(first_steps=0, window_steps=0, extra_share=0)
    batch = replace(make_batch(steps=3), records=(make_anomaly(1),))
    [span] = export(batch, retention=rules)
    assert span.name == "anomaly hook_exception"
    assert context(span).trace_id == StepIds.of("sample", MODEL, 1).trace_id


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
def test_application_keeps_its_providers_and_ids(
    late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Global providers, set before or after the exporter is made, are used and stay alive."""
    memory, reader = InMemorySpanExporter(), InMemoryMetricReader()
    provider, meters = TracerProvider(), MeterProvider([reader])
    provider.add_span_processor(SimpleSpanProcessor(memory))
    early = OpenTelemetryExporter()
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: meters)
    exporter = early if late else OpenTelemetryExporter()
    exporter.export(make_batch(rank=1, steps=1))
    exporter.close()
    exporter.close()
    assert (memory.get_finished_spans()[0].attributes or {})["hooktrace.rank"] == 1
    assert '"hooktrace.steps"' in reader.get_metrics_data().to_json()  # type: ignore[union-attr]
    memory.clear()
    theirs = provider.get_tracer("hooktrace", hooktrace.__version__)
    theirs.start_span("theirs").end()
    [span] = memory.get_finished_spans()
    assert context(span).trace_id not in (0, StepIds.of("sample", MODEL, 0).trace_id)


def test_other_tracers_get_the_trace_by_a_remote_parent() -> None:
    """Without the SDK even rank 0 hangs below the shared root, so the trace is still shared."""
    parents: list[trace.SpanContext] = []

    def start_span(name: str, context: Any, **_: Any) -> trace.Span:
        parents.append(trace.get_current_span(context).get_span_context())
        return trace.NonRecordingSpan(parents[-1])

    provider = Mock(**{"get_tracer.return_value": Mock(start_span=start_span, spec=["start_span"])})
    exporter = OpenTelemetryExporter(tracer_provider=provider, metrics=False)
    exporter.export(make_batch(rank=0, steps=1))
    exporter.close()
    [parent] = parents
    ids = StepIds.of("sample", MODEL, 0)
    assert (parent.trace_id, parent.span_id) == (ids.trace_id, ids.root_span_id)
    assert (parent.is_remote, parent.trace_flags.sampled) == (True, True)


def test_stacks_are_bounded() -> None:
    """A thousand ranks have long ones, and backends refuse long attributes."""
    one = RankStacks(rank=1, pid=1, host="h", state="running", text="x" * 100)
    many = of_hang(replace(make_hang(), stacks=(one,) * 1000))
    assert len(str(many["hooktrace.hang.stacks"])) == 8192


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


def test_environment_selects_the_exporters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names and protocols pick entry points; ``none`` picks nothing; what is wrong has its fix."""
    for name, found in (("console, none", "ConsoleSpanExporter"), ("otlp", ".http.")):
        monkeypatch.setenv("OTEL_TRACES_EXPORTER", name)
        [exporter] = otel_pipeline.find_exporters("traces")
        assert found in str(exporter)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc")
    assert ".grpc." in str(otel_pipeline.find_exporters("traces"))
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


def test_dead_backend_is_asked_less_and_less(caplog: pytest.LogCaptureFixture) -> None:
    """After a failure batches are dropped for 5, 10, 20 s; one warning an outage; it recovers."""
    now, asked_at, result = [0.0], list[float](), [SpanExportResult.FAILURE]
    backend = Mock(export=lambda _: (asked_at.append(now[0]), result[0])[1])
    deliveries = otel_pipeline.Backend(backend, "spans", lambda: now[0])
    span = ReadableSpan("x")
    for now[0] in range(40):
        deliveries.export([span])
    assert asked_at == [0, 5, 15, 35]
    assert len(caplog.records) == 1
    result[0], now[0] = SpanExportResult.SUCCESS, 75.0
    assert deliveries.export([span, span]) is SpanExportResult.SUCCESS
    assert deliveries.export([span]) is SpanExportResult.SUCCESS
    assert (deliveries.arrived, deliveries.refused) == (3, 40)


@pytest.mark.parametrize("accepts", [False, True])
def test_exports_of_metrics_that_fail_are_counted(
    accepts: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The last one, which ``close`` makes, is told from one that arrived; nothing is raised."""
    collector = Mock(_preferred_temporality={}, _preferred_aggregation={})
    collector.export.side_effect = [MetricExportResult.SUCCESS if accepts else OSError("boom")]
    monkeypatch.setattr(otel_pipeline, "find_exporters", lambda _: [lambda: collector])
    exporter = OpenTelemetryExporter(spans=False)
    exporter.export(make_batch(steps=3))
    assert exporter.lost == {}
    exporter.close()
    assert exporter.lost == ({} if accepts else {"metric_exports": 1})
    assert collector.export.call_count == 1
    assert ("takes no metric exports (boom)" in caplog.text) == (not accepts)
