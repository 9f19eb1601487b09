"""What spans say of steps, buckets, stages and anomalies."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from hooktrace.records import Transfer
from tests.exporters.records_sample import (
    HOOK,
    MODEL,
    make_anomaly,
    make_batch,
    make_step,
    on_device,
    opaque,
    probed,
)
from tests.exporters.spans import Export, attributes, named

MS = 1_000_000


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
