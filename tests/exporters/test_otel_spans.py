"""Spans of steps: times, parents, ids that all ranks agree on, attributes."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from opentelemetry import trace

from hooktrace.exporters import OpenTelemetryExporter, Retention
from hooktrace.exporters.otel_spans import StepIds
from hooktrace.records import Transfer
from tests.exporters.records_sample import (
    HOOK,
    MODEL,
    WALL_ANCHOR_NS,
    make_anomaly,
    make_batch,
    make_hang,
    make_step,
    on_device,
    opaque,
    probed,
    sharded_batch,
)
from tests.exporters.spans import Export, attributes, context, named

MS = 1_000_000


def test_spans_have_the_records_times(export: Export) -> None:
    """A step holds its buckets and they their stages, with the records' times in Unix ns."""
    spans = export(make_batch(steps=1, bucket_count=1))
    zero = WALL_ANCHOR_NS
    times = {s.name: ((s.start_time or 0) - zero, (s.end_time or 0) - zero) for s in spans}
    assert times == {
        "ddp step": (0, 2 * MS),
        "bucket 0": (0, 2 * MS),
        "compress": (0, 100_000),
        "queue": (100_000, 500_000),
        "wire": (500_000, 1_500_000),
        "decompress": (1_500_000, 2 * MS),
    }
    parents = {s.name: s.parent.span_id if s.parent else None for s in spans}
    step, bucket = context(named(spans, "ddp step")), context(named(spans, "bucket 0"))
    stages = dict.fromkeys(("compress", "queue", "wire", "decompress"), bucket.span_id)
    assert parents == {"ddp step": None, "bucket 0": step.span_id, **stages}
    assert {context(span).trace_id for span in spans} == {step.trace_id}
    assert len({context(span).span_id for span in spans}) == 6


def test_a_sharded_step_has_a_span_for_each_unit_s_collective(export: Export) -> None:
    """Called by what they are, inside a step that is no step of DDP's, on the same trace."""
    spans = export(sharded_batch(steps=1), sharded_batch(rank=1, steps=1))
    first, second = [span for span in spans if span.name == "sharded step"]
    assert not [span for span in spans if span.name.startswith(("bucket", "ddp"))]
    assert second.parent is not None
    assert second.parent.span_id == context(first).span_id
    own = [s for s in spans if s.parent and s.parent.span_id == context(first).span_id]
    step, calls = sharded_batch(steps=1).steps[0]
    assert [s.name for s in own if s is not second] == [str(call.unit) for call in calls]
    told = [attributes(s)["hooktrace.exposed_ns"] for s in own if s is not second]
    assert sum(told) == attributes(first)["hooktrace.exposed_ns"] == step.exposed_ns


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


def test_exceptions_and_anomalies_are_events(export: Export) -> None:
    """They stand on their bucket, or on the step when the bucket is missing, with status ERROR."""
    record, buckets = make_step(0)
    step = (record, (replace(buckets[0], exception="ValueError: boom"),))
    anomalies = (make_anomaly(0, 0, kind="nan"), make_anomaly(0, 1, kind="lost"))
    spans = export(replace(make_batch(), steps=(step,), records=anomalies))
    bucket, whole = named(spans, "bucket 0"), named(spans, "ddp step")
    assert [event.name for event in bucket.events] == ["hooktrace.anomaly", "exception"]
    assert bucket.events[0].timestamp == WALL_ANCHOR_NS + 1_200_000
    assert dict(bucket.events[1].attributes or {}) == {
        "exception.type": "ValueError",
        "exception.message": "ValueError: boom",
    }
    assert [dict(e.attributes or {})["hooktrace.anomaly.kind"] for e in whole.events] == ["lost"]
    for span in (bucket, whole):
        assert span.status.status_code is trace.StatusCode.ERROR
        assert span.status.description == "ValueError: boom"


def test_late_anomaly_joins_the_trace_of_its_step(export: Export) -> None:
    """An anomaly that comes after its step is a span of no length below the step's root."""
    spans = export(replace(make_batch(), steps=(), records=(make_anomaly(7),)))
    [span] = spans
    ids = StepIds.of("sample", MODEL, 7)
    assert span.name == "anomaly hook_exception"
    assert span.parent is not None
    assert (context(span).trace_id, span.parent.span_id) == (ids.trace_id, ids.root_span_id)
    assert context(span).span_id != ids.root_span_id
    assert span.start_time == span.end_time == WALL_ANCHOR_NS + 70 * MS + 1_200_000


def test_a_hang_is_a_span_when_it_is_recorded_and_when_it_is_over(export: Export) -> None:
    """In the trace of its step: of no length and an error at first, then as long as it took."""
    records = (make_hang(7), make_hang(7, ended_after_ns=42_000 * MS))
    lasting, over = export(replace(make_batch(), steps=(), records=records))
    ids = StepIds.of("sample", MODEL, 7)
    for span in (lasting, over):
        assert span.name == "hang busy"
        assert span.parent is not None
        assert (context(span).trace_id, span.parent.span_id) == (ids.trace_id, ids.root_span_id)
        assert span.start_time == WALL_ANCHOR_NS + 70 * MS
    assert lasting.end_time == lasting.start_time
    assert lasting.status.status_code is trace.StatusCode.ERROR
    assert lasting.status.description == make_hang(7).message
    assert over.end_time == WALL_ANCHOR_NS + 42_070 * MS
    assert over.status.status_code is trace.StatusCode.UNSET
    assert attributes(over)["hooktrace.hang.ended"] is True


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


def test_spans_carry_the_records_numbers(export: Export) -> None:
    spans = export(make_batch(steps=1))
    step = attributes(named(spans, "ddp step"))
    assert (step["hooktrace.model"], step["hooktrace.hook"]) == (MODEL, HOOK)
    assert (step["hooktrace.step"], step["hooktrace.generation"]) == (0, 1)
    assert (step["hooktrace.exposed_ns"], step["hooktrace.busy_ns"]) == (2 * MS, 3 * MS)
    assert step["hooktrace.gradient_bytes"] == 8000
    assert step["hooktrace.overlap_ratio"] == pytest.approx(1 / 3)
    assert (step["hooktrace.warmup"], step["hooktrace.shadow"]) == (False, False)
    assert "hooktrace.previous_period_ns" not in step
    bucket = attributes(named(spans, "bucket 1"))
    assert (bucket["hooktrace.bucket.index"], bucket["hooktrace.bucket.is_last"]) == (1, True)
    assert (bucket["hooktrace.gradient_bytes"], bucket["hooktrace.wire_bytes"]) == (4000, 2000)
    assert bucket["hooktrace.compression_ratio"] == 2.0
    assert bucket["hooktrace.clock"] == "host"
    assert not [name for name in bucket if ".unit." in name or "exposed" in name]
    wire = attributes(next(span for span in spans if span.name == "wire"))
    assert (wire["hooktrace.collective"], wire["hooktrace.stage.derived"]) == ("all_reduce", True)


def test_spans_of_probed_buckets_carry_the_error(export: Export) -> None:
    """Numbers and the worst parameters; buckets that were not probed have none of them."""
    batch = replace(make_batch(steps=1), steps=(probed(make_step(1)),))
    spans = export(batch)
    found = attributes(named(spans, "bucket 0"))
    error = {k: v for k, v in found.items() if k.startswith("hooktrace.error.")}
    assert error == {
        "hooktrace.error.relative_l2": 0.25,
        "hooktrace.error.cosine": 0.75,
        "hooktrace.error.max_absolute": 2.0,
        "hooktrace.error.flipped_share": 0.125,
        "hooktrace.error.residual_l2": 16.0,
        "hooktrace.error.scope": "global",
        "hooktrace.error.worst": "layer0.bias",
    }
    assert not [k for k in attributes(named(spans, "bucket 1")) if "error" in k]


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (
            (("all_gather", "uint8", 9), ("all_reduce", "float16", 8)),
            "all_gather uint8 9, all_reduce float16 8",
        ),
        ((), "nothing"),
        (None, None),
    ],
)
def test_spans_say_what_an_opaque_hook_sent(
    export: Export, sent: tuple[tuple[str, str, int], ...] | None, text: str | None
) -> None:
    """By collective and dtype, on the step and on the bucket that is known to have sent it."""
    transfers = None
    if sent is not None:
        transfers = tuple(Transfer(collective=c, dtype=d, wire_bytes=n) for c, d, n in sent)
    batch = replace(make_batch(steps=1), steps=(opaque(make_step(1), sent=transfers),))
    spans = export(batch)
    for name in ("ddp step", "bucket 0"):
        assert attributes(named(spans, name)).get("hooktrace.sent") == text
    assert "hooktrace.sent" not in attributes(named(spans, "bucket 1"))


def test_anomalies_say_rank_and_parameter(export: Export) -> None:
    for rank, parameter in ((3, "layer0.bias"), (None, None)):
        anomaly = replace(make_anomaly(0), rank=rank, parameter=parameter)
        spans = export(replace(make_batch(steps=1), records=(anomaly,)))
        (event,) = [e for s in spans for e in s.events if e.name == "hooktrace.anomaly"]
        found = dict(event.attributes or {})
        assert found.get("hooktrace.rank") == rank
        assert found.get("hooktrace.parameter") == parameter


def test_device_times_are_numbers_and_not_spans(export: Export) -> None:
    """A bucket on a device keeps host times for its span; its device times are attributes."""
    spans = export(replace(make_batch(), steps=(on_device(make_step(0, bucket_count=1)),)))
    assert sorted(span.name for span in spans) == ["bucket 0", "ddp step"]
    bucket = named(spans, "bucket 0")
    found = attributes(bucket)
    assert (bucket.end_time or 0) - (bucket.start_time or 0) == 2 * MS
    assert (found["hooktrace.clock"], found["hooktrace.device.resolved"]) == ("device", True)
    assert found["hooktrace.device.duration_ns"] == 4 * MS
    assert found["hooktrace.device.wire_ns"] == 2 * MS


def test_unresolved_device_times_are_absent(export: Export) -> None:
    """Where the device events never came back no duration is claimed."""
    step = on_device(make_step(0, bucket_count=1), resolved=False)
    spans = export(replace(make_batch(), steps=(step,)))
    found = attributes(named(spans, "bucket 0"))
    assert found["hooktrace.device.resolved"] is False
    assert not any(key.endswith("_ns") for key in found)
