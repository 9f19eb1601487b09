"""What backends get of made-up batches, as text: one file a job in ``golden/``; tests compare.

Each metric with all of its values, the spans as trees, and what TensorBoard reads back.

    python -m tests.exporters.golden    # writes all of them anew, after a change that is meant
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import wrap

from msgspec.structs import replace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from hooktrace.exporters import OpenTelemetryExporter, TensorBoardExporter
from hooktrace.exporters.observations import Observer
from hooktrace.records import Batch, CompletedStep, ErrorRecord, Transfer
from hooktrace.records import metrics as m
from hooktrace.records.base import Record
from hooktrace.testing.synthetic_shards import ShardedJob, sharded_steps
from tests.exporters import records_sample as sample

HERE = Path(__file__).with_name("golden")
_SENT = (
    Transfer(collective="all_gather", dtype="uint8", wire_bytes=1500),
    Transfer(collective="all_reduce", dtype="float32", wire_bytes=500),
)
_FROM_ZERO = {m.ANOMALIES, m.HANGS, m.RECORDS_LOST, m.EXPORTER_FAILURES}
"""Begun with a 0 for each of their many labels."""

_RUN = {"host.name", *(f"hooktrace.{x}" for x in ("run_id", "rank", "local_rank", "world_size"))}
"""What each span says where its resource is the application's."""


def _batch(*steps: CompletedStep, records: Sequence[Record] = ()) -> Batch:
    return Batch(run=sample.make_run(), steps=steps, records=tuple(records))


def _changed(
    completed: CompletedStep, *firsts: dict[str, object], **of_step: object
) -> CompletedStep:
    """Return a step with fields changed: its own, and of its first buckets."""
    step, buckets = completed
    pairs = zip(buckets, (*firsts, *[{}] * len(buckets)), strict=False)
    return replace(step, **of_step), tuple(replace(b, **fields) for b, fields in pairs)


def _unknown_error() -> CompletedStep:
    _, (bucket, _) = checked = sample.checked(sample.make_step(1))
    assert bucket.error is not None
    error = replace(bucket.error, relative_l2=None, cosine=None, max_absolute=None)
    return _changed(checked, {"error": error})


def _wrong() -> Batch:
    """Failures, with the anomalies that tell of them, and hangs."""
    steps = (
        sample.marked(sample.checked(sample.make_step(1)), join_dummy=True),
        _changed(sample.make_step(2), {"exception": "ValueError: boom"}, complete=False),
    )
    found = replace(sample.make_anomaly(2, kind="nan"), rank=3, parameter="layer0.bias")
    missing = replace(sample.make_anomaly(2, kind="lost"), bucket=7)
    late = sample.make_anomaly(9)
    hangs = sample.make_hang(3), sample.make_hang(3, ended_after_ns=42 * 10**9)
    return _batch(*steps, records=(found, missing, late, *hangs))


def _wrong_sharded() -> Batch:
    """Steps of a sharded model that do not count, or of which something is not known."""
    batch = sample.sharded_batch(steps=4)
    checked, waited, failed, halved = batch.steps
    assert checked[1][-1].error is not None
    calls = tuple(replace(c, wire_bytes=c.gradient_bytes // 2) for c in halved[1])
    steps = (
        sample.marked(checked, join_dummy=True),
        _changed(waited, {"exposed_ns": None}, exposed_ns=None),
        _changed(failed, {"exception": "OSError: x"}, complete=False),
        (halved[0], calls),
    )
    return replace(batch, steps=steps)


def _micro_steps() -> Batch:
    """A checked sharded step of two micro-steps, whose calls have errors of their own."""
    job = ShardedJob(steps=1, micro_steps=2, units=("<root>",))
    step, calls = next(sharded_steps(job))[0]
    of = {"cosine": 1.0, "max_absolute": 0.0, "flipped_share": 0.0, "reference_l2": 1.0}
    errors = [ErrorRecord(relative_l2=one, **of) for one in (0.5, 0.25, 0.125)]
    checked = (replace(c, error=e) for c, e in zip(calls, errors, strict=True))
    run = replace(job.run(0), run_id="sample")
    return Batch(run=run, steps=((step, tuple(checked)),), records=(job.layout(),))


def _checked() -> Batch:
    first, second = (sample.looked_at(sample.make_step(i)) for i in (1, 2))
    return _batch(first, _changed(second, previous_period_ns=None))


def _job() -> Batch:
    skews = sample.make_skew(), sample.make_skew(rank=1), sample.make_skew(uncertainty_ns=None)
    clocks = sample.make_clock(1), sample.make_clock(-2_000_000_000, 5_000)
    steps = sample.make_job_step(), sample.make_job_step(arrival_delay_ns=40_000)
    return _batch(records=(*clocks, *skews, *steps))


def _plain() -> Batch:
    """A plain hook, of which it is known in two steps what it sent; a warm-up does not count."""
    known = sample.plain(sample.make_step(1), sent=_SENT)
    warmup = _changed(known, warmup=True, wire_bytes=1)
    nothing = sample.plain(sample.make_step(3), sent=())
    return _batch(known, warmup, sample.plain(sample.make_step(2), sent=None), nothing)


JOBS = {
    "all": sample.full_batch(),
    "sharded": sample.sharded_batch(),
    "micro-steps": _micro_steps(),
    "checked": _checked(),
    "plain": _plain(),
    "device": _batch(
        sample.on_device(sample.make_step(1)),
        _changed(sample.on_device(sample.make_step(2), resolved=False), wire_bytes=None),
    ),
    "unknown": _batch(
        _unknown_error(), _changed(sample.make_step(2), bus_bytes=None),
        _changed(sample.make_step(3), wire_in_flight_ns=None),
    ),
    "wrong": _wrong(),
    "wrong-sharded": _wrong_sharded(),
    "job": _job(),
}  # fmt: skip


def path_of(name: str) -> Path:
    """Return the file of a job."""
    return HERE / f"{name}.txt"


def told_of(batch: Batch) -> str:
    """Return what all backends get."""
    parts = {"metrics": _metrics(batch), "spans": _spans(batch), "tensorboard": _events(batch)}
    return "\n".join(line for name, lines in parts.items() for line in (f"# {name}", *lines, ""))


def _metrics(batch: Batch) -> Iterator[str]:
    found: defaultdict[tuple[m.Metric, tuple[str, ...]], list[float]] = defaultdict(list)
    for metric, labels, values in Observer("test").observe(batch):
        for own, value in zip(labels, values, strict=True):
            assert len(own) == len(metric.labels)
            found[metric, own].append(value)
    for (metric, own), values in found.items():
        if metric not in _FROM_ZERO or any(values):
            yield f"{metric.name}{{{', '.join(own)}}} {' '.join(map(_number, values))}"


def _number(value: float) -> str:
    return f"{value:.12g}"


def spans_of(batch: Batch, **options: object) -> list[ReadableSpan]:
    """Return the spans that an application's provider gets."""
    memory, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    exporter = OpenTelemetryExporter(tracer_provider=provider, metrics=False, **options)  # type: ignore[arg-type]
    exporter.export(batch)
    exporter.close()
    return list(memory.get_finished_spans())


def _spans(batch: Batch) -> Iterator[str]:
    spans, said = spans_of(batch), Said({})
    own = {span.get_span_context().span_id for span in spans}
    for span in sorted(spans, key=lambda one: one.start_time or 0):
        if span.parent is None or span.parent.span_id not in own:
            yield from tree(span, spans, batch.run.wall_ns(0), said)


Said = dict[str, dict[str, object]]
"""The attributes that were shown last, by the first word of what they were of."""


def tree(
    span: ReadableSpan, spans: Sequence[ReadableSpan], zero_ns: int, said: Said
) -> Iterator[str]:
    """Yield a span and those inside; times in us, a span whose parent is remote below ``^``.

    Of attributes those that differ from the last of its kind; ``-`` before one that is gone.
    Spans in a row that differ in their times alone share a line.
    """
    context = span.get_span_context()
    remote = "^ " if span.parent is not None and span.parent.is_remote else ""
    start, end = (((at or 0) - zero_ns) // 1000 for at in (span.start_time, span.end_time))
    yield f"{remote}{span.name} {start} to {end}"
    if span.status.description:
        yield f"    {span.status.status_code.name}: {span.status.description}"
    found = {k: v for k, v in (span.attributes or {}).items() if k not in _RUN}
    yield from _attributes(span.name, found, said)
    for event in span.events:
        yield f"    event {event.name} {(event.timestamp - zero_ns) // 1000}"
        yield from _attributes(event.name, dict(event.attributes or {}), said)
    inside: list[str] = []
    for one in spans:
        if one.parent is not None and one.parent.span_id == context.span_id:
            assert one.get_span_context().trace_id == context.trace_id
            first, *more = tree(one, spans, zero_ns, said)
            if inside and not more:
                inside[-1] += f"; {first}"
                continue
            inside.append(f"  {first}")
            if more:
                yield from inside
                yield from (f"  {line}" for line in more)
                inside.clear()
    yield from inside


def _attributes(name: str, found: dict[str, object], said: Said) -> Iterator[str]:
    kind = name.partition(" ")[0]
    before, said[kind] = said.get(kind, {}), found
    new = [f"{key}={value}" for key, value in found.items() if value != before.get(key)]
    gone = [f"-{key}" for key in before if key not in found]
    for line in wrap("; ".join([*new, *gone]).replace("hooktrace.", ""), 90):
        yield f"    {line}"


def _events(batch: Batch) -> Iterator[str]:
    kinds = ("scalars", "tensors", "histograms")
    with TemporaryDirectory() as folder:
        exporter = TensorBoardExporter(folder)
        exporter.export(batch)
        exporter.close()
        rank = Path(folder, f"rank{batch.run.rank}")
        events = EventAccumulator(str(rank), size_guidance=dict.fromkeys(kinds, 0)).Reload()
    for tag in events.Tags()["scalars"]:
        values = (f"{one.step}: {one.value:.6g}" for one in events.Scalars(tag))
        yield f"{tag} {', '.join(values)}"
    for tag in events.Tags()["histograms"]:
        for one in events.Histograms(tag):
            value = one.histogram_value
            yield f"{tag} {one.step}: {value.num:g} from {value.min:.6g} to {value.max:.6g}"
    for tag in events.Tags()["tensors"]:
        if tag.startswith("hooktrace."):
            for text in events.Tensors(tag):
                yield f"{tag} {text.step}"
                yield from text.tensor_proto.string_val[0].decode().splitlines()


if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    for name, batch in JOBS.items():
        path_of(name).write_text(told_of(batch), "utf-8")
