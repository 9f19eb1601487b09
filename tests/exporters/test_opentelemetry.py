"""The OpenTelemetry exporter: which steps have spans, and whose providers are used."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import hooktrace
from hooktrace.exporters import OpenTelemetryExporter, Retention
from hooktrace.exporters.otel_spans import StepIds
from tests.exporters.records_sample import HOOK, MODEL, checked, make_anomaly, make_batch, make_step
from tests.exporters.spans import Export, attributes, context, exported_steps


def test_ranks_keep_the_same_share_of_steps(export: Export) -> None:
    """The first of a rebuild, one of so many by number, and the checked; whole or not at all."""
    rules = Retention(first_steps=3, window_steps=1, window_every=10)
    batches = [make_batch(rank=rank, steps=34) for rank in (0, 1)]
    batches = [replace(b, steps=(*b.steps, checked(make_step(57)))) for b in batches]
    spans = export(*batches, retention=rules)
    assert exported_steps(spans, 0) == exported_steps(spans, 1) == [0, 1, 2, 10, 20, 30, 57]
    assert len(spans) == 2 * 7 * 11
    left_out = [attributes(s)["hooktrace.left_out.steps"] for s in spans if s.name == "ddp step"]
    assert left_out == 2 * [0, 0, 0, 7, 16, 25, 28]


def test_by_default_few_steps_have_spans(export: Export) -> None:
    """The first ten of a rebuild and every fiftieth."""
    spans = export(make_batch(steps=120, bucket_count=1))
    assert exported_steps(spans, 0) == [*range(10), 50, 100]


def test_a_slow_step_has_spans_and_so_has_the_one_before() -> None:
    """The period of a step is known when the next one begins: that is the one which says it."""
    memory, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    exporter = OpenTelemetryExporter(
        tracer_provider=provider,
        metrics=False,
        retention=Retention(first_steps=0, window_steps=0),
    )
    for number in range(60):
        step, buckets = make_step(number)
        if number == 50:
            step = replace(step, previous_period_ns=3 * (step.previous_period_ns or 0))
        exporter.export(replace(make_batch(), steps=((step, buckets),)))
    assert exported_steps(memory.get_finished_spans(), 0) == [49, 50]
    assert exporter.left_out == {"steps": 58}


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
    assert attributes(memory.get_finished_spans()[0])["hooktrace.rank"] == 1
    assert points(reader)["hooktrace.steps", (HOOK, 1, MODEL)].value == 1
    memory.clear()
    theirs = provider.get_tracer("hooktrace", hooktrace.__version__)
    theirs.start_span("theirs").end()
    [span] = memory.get_finished_spans()
    assert context(span).trace_id not in (0, StepIds.of("sample", MODEL, 0).trace_id)


def points(reader: InMemoryMetricReader) -> dict[tuple[str, tuple[Any, ...]], Any]:
    """Return every data point by metric name and sorted attribute values."""
    data = reader.get_metrics_data()
    assert data is not None
    return {
        (metric.name, tuple(v for _, v in sorted((point.attributes or {}).items()))): point
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
        for point in metric.data.data_points
    }
