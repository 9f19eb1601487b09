"""Exporters that are closed, and an environment without the developer's own ``OTEL_*``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

from hooktrace.exporters import OpenTelemetryExporter, PrometheusExporter, otel_pipeline, otel_spans

Make = Callable[..., PrometheusExporter]

Export = Callable[..., list[ReadableSpan]]
"""Exports batches, one exporter a batch, and returns the spans."""


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the developer's own OTEL_* out of the tests, and the trainings of earlier ones."""
    otel_spans._used.clear()
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


class _Memory(InMemorySpanExporter):
    def shutdown(self) -> None:
        """Outlive the pipeline."""


@pytest.fixture(params=["own", "application"])
def export(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Export:
    """By either kind of pipeline."""

    def through(*batches: Any, ratio: float = 1.0, **options: Any) -> list[ReadableSpan]:
        memory = _Memory()
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
        monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", str(ratio))
        monkeypatch.setattr(otel_pipeline, "find_exporters", lambda _: [lambda: memory])
        if request.param == "application":
            options["tracer_provider"] = TracerProvider(ParentBased(TraceIdRatioBased(ratio)))
            options["tracer_provider"].add_span_processor(SimpleSpanProcessor(memory))
        for batch in batches:
            exporter = OpenTelemetryExporter(metrics=False, **options)
            exporter.export(batch)
            exporter.close()
            assert exporter.lost == {}
        return list(memory.get_finished_spans())

    return through


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[PrometheusExporter] = []

    def build(**options: object) -> PrometheusExporter:
        made.append(PrometheusExporter(**{"port": 0, **options}))  # type: ignore[arg-type]
        return made[-1]

    yield build
    for exporter in made:
        exporter.close()
