"""The OpenTelemetry exporter: exact spans and metrics, real receivers, backends that are down."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoints
from typing import Any

import pytest
from msgspec.structs import replace
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

from hooktrace.exporters import OpenTelemetryExporter, Retention, opentelemetry, otel_pipeline
from hooktrace.exporters.otel_spans import StepIds
from hooktrace.records import Transfer
from hooktrace.records.metrics import EXPOSED
from tests.exporters.records_sample import (
    HOOK,
    MODEL,
    WALL_ANCHOR_NS,
    full_batch,
    make_anomaly,
    make_batch,
    make_layout,
    make_step,
    on_device,
    opaque,
    probed,
)

Export = Callable[..., list[ReadableSpan]]
MS = 1_000_000


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


def named(spans: Sequence[ReadableSpan], name: str) -> ReadableSpan:
    """Return the only span of that name."""
    [found] = [span for span in spans if span.name == name]
    return found


def attributes(span: ReadableSpan) -> dict[str, Any]:
    """Return a span's attributes, which must be there."""
    return dict(span.attributes or {})


def context(span: ReadableSpan) -> trace.SpanContext:
    """Return a span's context, which must be there."""
    found = span.get_span_context()
    assert found is not None
    return found


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


def test_spans_carry_the_records_numbers(export: Export) -> None:
    """Attributes say model, hook and step, and have units in their names."""
    spans = export(make_batch(steps=1))
    step = attributes(named(spans, "ddp step"))
    assert (step["hooktrace.model"], step["hooktrace.hook"]) == (MODEL, HOOK)
    assert (step["hooktrace.step"], step["hooktrace.generation"]) == (0, 1)
    assert (step["hooktrace.exposed_ns"], step["hooktrace.busy_ns"]) == (2 * MS, 3 * MS)
    assert step["hooktrace.overlap_ratio"] == pytest.approx(1 / 3)
    assert (step["hooktrace.warmup"], step["hooktrace.shadow"]) == (False, False)
    assert "hooktrace.period_ns" not in step
    bucket = attributes(named(spans, "bucket 1"))
    assert (bucket["hooktrace.bucket.index"], bucket["hooktrace.bucket.is_last"]) == (1, True)
    assert (bucket["hooktrace.gradient_bytes"], bucket["hooktrace.wire_bytes"]) == (4000, 2000)
    assert bucket["hooktrace.compression_ratio"] == 2.0
    assert bucket["hooktrace.clock"] == "host"
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
    """Where they are known."""
    for rank, parameter in ((3, "layer0.bias"), (None, None)):
        anomaly = replace(make_anomaly(0), rank=rank, parameter=parameter)
        spans = export(replace(make_batch(steps=1), records=(anomaly,)))
        (event,) = [e for s in spans for e in s.events if e.name == "hooktrace.anomaly"]
        found = dict(event.attributes or {})
        assert found.get("hooktrace.rank") == rank
        assert found.get("hooktrace.parameter") == parameter


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


def exported_steps(spans: Sequence[ReadableSpan], rank: int) -> list[int]:
    """Return the steps of which a rank has spans; rank 0's are roots."""
    steps = [s for s in spans if s.name == "ddp step" and (s.parent is None) == (rank == 0)]
    return [int(attributes(span)["hooktrace.step"]) for span in steps]


def test_ranks_keep_the_same_share_of_steps(export: Export) -> None:
    """The first of a generation, one of so many by number, and the probed; whole or not at all."""
    rules = Retention(first_steps=3, window_steps=1, window_every=10)
    batches = [make_batch(rank=rank, steps=34) for rank in (0, 1)]
    batches = [replace(b, steps=(*b.steps, probed(make_step(57)))) for b in batches]
    spans = export(*batches, retention=rules)
    assert exported_steps(spans, 0) == exported_steps(spans, 1) == [0, 1, 2, 10, 20, 30, 57]
    assert len(spans) == 2 * 7 * 11
    left_out = [attributes(s)["hooktrace.left_out.steps"] for s in spans if s.name == "ddp step"]
    assert left_out == 2 * [0, 0, 0, 7, 16, 25, 28]


def test_a_slow_step_has_spans_and_so_has_the_one_before() -> None:
    """A period runs from the step before, whose communication may be what was slow."""
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
            step = replace(step, period_ns=3 * (step.period_ns or 0))
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
    theirs = provider.get_tracer("hooktrace", opentelemetry._version())
    theirs.start_span("theirs").end()
    [span] = memory.get_finished_spans()
    assert context(span).trace_id not in (0, StepIds.of("sample", MODEL, 0).trace_id)


class _OtherTracer:
    """A tracer that is not the SDK's: remembers its parents."""

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


def points(reader: InMemoryMetricReader) -> dict[tuple[str, tuple[Any, ...]], Any]:
    """Return every data point by metric name and sorted attribute values."""
    data = reader.get_metrics_data()
    assert data is not None
    return {
        (metric.name, tuple(v for _, v in sorted((point.attributes or {}).items()))): point
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
        for point in metric.data.data_points
    }


def test_metrics_have_the_records_values() -> None:
    """Counters add up, totals so far turn into increases, gauges are the last, bounds are ours."""
    reader = InMemoryMetricReader()
    exporter = OpenTelemetryExporter(meter_provider=MeterProvider([reader]), spans=False)
    exporter.export(full_batch())
    exporter.export(replace(full_batch(), losses={"ring_full": 5}))
    found = points(reader)
    assert found["hooktrace.steps", (HOOK, 0, MODEL)].value == 10
    assert found["hooktrace.gradient.io", ("0", HOOK, 0, MODEL)].value == 10 * 4000
    assert found["hooktrace.records.lost", (0, "ring_full")].value == 5
    assert found["hooktrace.exporter.failures", ("record_file", 0)].value == 1
    exposed = found["hooktrace.exposed", (HOOK, 0, MODEL)]
    assert (exposed.count, exposed.explicit_bounds) == (4, EXPOSED.buckets)
    assert exposed.sum == pytest.approx(4 * 0.002)
    exporter.export(replace(make_batch(), records=(make_layout(2, bucket_count=1),)))
    found = points(reader)
    assert found["hooktrace.bucket.size", ("0", HOOK, 0, MODEL)].value == 4000
    assert ("hooktrace.bucket.size", ("1", HOOK, 0, MODEL)) not in found
    assert found["hooktrace.bucket.generation", (HOOK, 0, MODEL)].value == 2


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
    """A missing package, an unknown exporter and an unknown protocol end in their remedy."""
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
