"""Ids of spans, on which all ranks agree; what spans say is in ``golden/``."""

from __future__ import annotations

from typing import Any

from opentelemetry import trace

from hooktrace.exporters import OpenTelemetryExporter, Retention
from hooktrace.exporters.otel_spans import StepIds
from tests.exporters.records_sample import MODEL, make_batch
from tests.exporters.spans import Export, context


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
    assert len({context(span).span_id for span in spans}) == len(spans) == 22


def test_ids_differ_between_runs_models_and_steps() -> None:
    """Only the same step of the same model in the same run gets the same ids."""
    keys = [("a", "net", 1), ("b", "net", 1), ("a", "other", 1), ("a", "net", 2), ("a", "ne", 11)]
    assert len({StepIds.of(*key) for key in keys}) == 5
    assert StepIds.of("a", "net", 1) == StepIds.of("a", "net", 1)
    assert all(0 < i.trace_id < 2**128 and 0 < i.root_span_id < 2**64 for i in
               (StepIds.of(*key) for key in keys))  # fmt: skip


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


class _OtherTracer:
    def __init__(self) -> None:
        self.parents: list[trace.SpanContext] = []

    def start_span(self, name: str, context: Any, **_: Any) -> trace.Span:
        parent = trace.get_current_span(context).get_span_context()
        self.parents.append(parent)
        return trace.NonRecordingSpan(parent)


class _OtherProvider:
    def __init__(self) -> None:
        self.tracer = _OtherTracer()

    def get_tracer(self, *_: Any) -> _OtherTracer:
        return self.tracer


def test_other_tracers_get_the_trace_by_a_remote_parent() -> None:
    """Without the SDK even rank 0 hangs below the shared root, so the trace is still shared."""
    provider = _OtherProvider()
    exporter = OpenTelemetryExporter(tracer_provider=provider, metrics=False)  # type: ignore[arg-type]
    exporter.export(make_batch(rank=0, steps=1))
    exporter.close()
    [parent] = provider.tracer.parents
    ids = StepIds.of("sample", MODEL, 0)
    assert (parent.trace_id, parent.span_id) == (ids.trace_id, ids.root_span_id)
    assert parent.is_remote
    assert parent.trace_flags.sampled
