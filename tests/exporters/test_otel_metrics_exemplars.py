"""Which span a sample of a histogram leads to."""

from __future__ import annotations

from msgspec.structs import replace
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Sampler

from hooktrace.exporters.observations import Observer
from hooktrace.exporters.otel_metrics import Exemplars, ReaderTotals
from hooktrace.exporters.otel_spans import StepTraces
from hooktrace.records import CompletedStep
from tests.exporters.records_sample import (
    HOOK,
    MODEL,
    looked_at,
    make_batch,
    make_run,
    make_step,
    sharded_batch,
)

LABELS = MODEL, HOOK, "0"


def tracing(sampler: Sampler = ALWAYS_ON) -> tuple[StepTraces, InMemorySpanExporter]:
    """Return what writes spans, and where they are kept."""
    memory = InMemorySpanExporter()
    provider = TracerProvider(sampler=sampler)
    provider.add_span_processor(SimpleSpanProcessor(memory))
    return StepTraces(provider.get_tracer("test"), make_run(), is_ours=True), memory


def traced(*steps: CompletedStep, sampler: Sampler = ALWAYS_ON) -> tuple[Exemplars, dict[int, str]]:
    """Write steps as spans; returns the exemplars, and the spans' names by id."""
    traces, memory = tracing(sampler)
    for step in steps:
        traces.write(step, (), 0)
    return traces.exemplars, {_id(span): span.name for span in memory.get_finished_spans()}


def _id(span: ReadableSpan) -> int:
    return span.get_span_context().span_id


def slow(step: CompletedStep) -> CompletedStep:
    record, (first, *others) = step
    return record, (replace(first, done_ns=first.ready_ns + 1_000_000_000), *others)


def test_a_slow_bucket_is_not_displaced_by_fast_ones() -> None:
    """The last one within each bound of the histogram, each with its own span and value."""
    exemplars, names = traced(slow(make_step(1)), make_step(2), make_step(3))
    found = {one.value: names[one.span_id or 0] for one in exemplars.since(LABELS, 0)}
    assert found == {1.0: "bucket 0", 0.002: "bucket 0"}
    assert exemplars.since((MODEL, HOOK, "9"), 0) == []


def test_only_what_the_histogram_counts_and_a_backend_gets() -> None:
    """No probed step, no failed call, no unit, no span that the sampler drops."""
    record, (first, *others) = make_step(2)
    failed = (record, (replace(first, exception="ValueError: boom"), *others))
    assert traced(looked_at(make_step(1)), failed)[0].since(LABELS, 0) == []
    assert traced(make_step(1), sampler=ALWAYS_OFF)[0].since(LABELS, 0) == []
    unit = sharded_batch().steps[1]
    labels = unit[0].model, unit[0].hook, "0"
    assert traced(unit)[0].since(labels, 0) == []


def test_a_reader_gets_each_once() -> None:
    """With the point of its series, and of no other metric."""
    traces, memory = tracing()
    reader = InMemoryMetricReader()
    totals = ReaderTotals(reader, Resource.create({}), "1.0", traces.exemplars)
    totals.add(Observer("test").observe(make_batch()))
    traces.write(make_step(1), (), 0)
    names = {_id(span): span.name for span in memory.get_finished_spans()}
    assert given(reader, names) == {
        ("hooktrace.bucket.duration", bucket): [f"bucket {bucket}"] for bucket in "01"
    }
    assert given(reader, names) == {}


def given(reader: InMemoryMetricReader, names: dict[int, str]) -> dict[tuple[str, str], list[str]]:
    """Return the names of the spans that points lead to, by metric and bucket."""
    data = reader.get_metrics_data()
    assert data is not None
    return {
        (metric.name, str(point.attributes["bucket"])): [
            names[exemplar.span_id or 0] for exemplar in point.exemplars
        ]
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
        for point in metric.data.data_points
        if getattr(point, "exemplars", None)
    }
