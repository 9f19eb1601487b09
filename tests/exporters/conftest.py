"""Exporters that are closed, and an environment without the developer's own ``OTEL_*``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

from hooktrace.exporters import OpenTelemetryExporter, PrometheusExporter, otel_pipeline
from tests.exporters.spans import Export

Make = Callable[..., PrometheusExporter]


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the developer's own OTEL_* out of the tests."""
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


@pytest.fixture(params=["own", "application"])
def export(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Export:
    """Export batches, one exporter a batch, and return the spans; by either kind of pipeline."""

    def through(*batches: Any, ratio: float = 1.0, **options: Any) -> list[ReadableSpan]:
        memory = InMemorySpanExporter()
        for batch in batches:
            if request.param == "own":
                monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
                monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", str(ratio))
                kept = _Kept(memory)
                monkeypatch.setattr(otel_pipeline, "find_exporters", lambda _, k=kept: [lambda: k])
                exporter = OpenTelemetryExporter(metrics=False, **options)
            else:
                provider = TracerProvider(sampler=ParentBased(TraceIdRatioBased(ratio)))
                provider.add_span_processor(SimpleSpanProcessor(memory))
                exporter = OpenTelemetryExporter(tracer_provider=provider, metrics=False, **options)
            exporter.export(batch)
            exporter.close()
            assert exporter.lost == {}
        return list(memory.get_finished_spans())

    return through


class _Kept(SpanExporter):
    """Passes spans on to a memory that outlives the pipeline's shutdown."""

    def __init__(self, memory: InMemorySpanExporter) -> None:
        self.memory = memory

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return self.memory.export(spans)


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[PrometheusExporter] = []

    def build(**options: object) -> PrometheusExporter:
        made.append(PrometheusExporter(**{"port": 0, **options}))  # type: ignore[arg-type]
        return made[-1]

    yield build
    for exporter in made:
        exporter.close()
