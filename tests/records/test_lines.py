"""The line of a bucket: short, and with its layout or by itself whole."""

from __future__ import annotations

from msgspec.structs import replace

from hooktrace.records import Unit
from hooktrace.records.codec import RecordEncoder, decode_line
from hooktrace.records.content import SkippedLine
from hooktrace.records.lines import BucketLine
from tests.exporters import records_sample as sample

from .text import decode, encode


def test_what_the_layout_says_is_said_once() -> None:
    """Of another generation, model or shape a bucket says everything itself."""
    layout = sample.make_layout()
    step, (bucket, other) = sample.make_step()
    odd = [
        replace(bucket, generation=2),
        replace(bucket, model="another"),
        replace(bucket, dtype="float64"),
        replace(bucket, is_last=True),
    ]
    data = encode(sample.make_run(), [(step, (bucket, other, *odd))], layout)
    lines = [line for line in map(decode_line, data.splitlines()) if isinstance(line, BucketLine)]
    assert [line.hook for line in lines] == [None, None, *[sample.HOOK] * 4]
    assert decode(data).buckets == [bucket, other, *odd]


def test_a_unit_s_ranks_are_said_once() -> None:
    """In the layout; the line of a collective is as long as before."""
    step, (bucket, _) = sample.make_step()
    unit = Unit(name="block", collective="all_gather", phase="forward")
    sharded = replace(bucket, unit=unit, members=(0, 64, 8))
    layout = sample.make_layout()
    entry = replace(layout.buckets[0], unit=unit, members=(0, 64, 8))
    layout = replace(layout, buckets=(entry, *layout.buckets[1:]))
    data = encode(sample.make_run(), [(step, (sharded,))], layout)
    assert data.count(b'"members":[0,64,8]') == 1
    assert decode(data).buckets == [sharded]


def test_a_line_that_says_half_of_its_facts_is_named() -> None:
    """A field that damage made null is not taken for one that the layout says."""
    step, buckets = sample.make_step()
    data = encode(sample.make_run(), [(step, buckets)])
    found = decode(data.replace(b'"dtype":"float32","device', b'"dtype":null,"device', 1))
    assert found.buckets == [buckets[1]]
    assert found.skipped == [SkippedLine(2, "the field 'dtype' is missing")]


def test_a_bucket_with_three_stages_takes_at_most_350_bytes() -> None:
    """With clocks of a host that has been up for 100 days, and a model with a name."""
    up_ns = 100 * 86_400 * 10**9
    bucket = sample.make_bucket(step=123_456, bucket=24, bucket_count=25)
    compress, _, wire, decompress = bucket.stages
    stages = [replace(s, end_ns=s.end_ns + 123_456_789) for s in (compress, wire, decompress)]
    stages[1] = replace(stages[1], wire_bytes=26_214_400)
    late = replace(
        bucket,
        model="char_transformer",
        ready_ns=bucket.ready_ns + up_ns,
        launched_ns=bucket.launched_ns + up_ns,
        done_ns=bucket.done_ns + up_ns,
        stages=tuple(
            replace(s, start_ns=s.start_ns + up_ns, end_ns=s.end_ns + up_ns) for s in stages
        ),
        wire_bytes=26_214_400,
        bus_bytes=39_321_600.0,
    )
    encoder = RecordEncoder()
    layout = sample.make_layout(bucket_count=25)
    encoder.record(replace(layout, model=late.model))
    line = encoder.buckets([late])
    assert len(line) <= 350, line
