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
    assert found.skipped == [SkippedLine(3, "the field 'dtype' is missing")]


def test_stages_that_are_not_as_many_as_their_times_are_named() -> None:
    """Of several rounds, whichever list lost one; nothing is guessed."""
    step, (bucket, other) = sample.make_step()
    rounds = replace(bucket, stages=bucket.stages[1:] + bucket.stages)
    data = encode(sample.make_run(), [(step, (rounds, other))])
    assert decode(data).buckets == [rounds, other]
    for line, shorter in (
        (b'"stage_ns":[400000,', b'"stage_ns":['),
        (b'"stage_starts_ns":[100000,', b'"stage_starts_ns":['),
    ):
        assert line in data
        found = decode(data.replace(line, shorter, 1))
        assert found.buckets == [other]
        assert [line for line, _ in found.skipped] == [4]


def test_rounds_whose_names_are_lost_are_no_stages() -> None:
    """What a line says by itself is kept: the sums, which are columns of the file."""
    step, (bucket, other) = sample.make_step()
    rounds = replace(bucket, stages=bucket.stages * 2)
    data = encode(sample.make_run(), [(step, (rounds, other))])
    first, *_ = decode(
        data.replace(b'"kind":"sends","number":1', b'"kind":"sends","number":9')
    ).buckets
    assert first == replace(rounds, stages=(), bus_bytes=None)
    # Damaged, it takes no other line with it.
    found = decode(data.replace(b'"stages":[', b'"stagss":[', 1))
    assert (found.buckets[0].stages, found.buckets[1], found.skipped) == ((), other, [])


def test_what_stages_have_in_common_is_said_once() -> None:
    """In a file; it comes back, also of a call whose bytes are another one's."""
    step, (bucket, other) = sample.make_step()
    wider = replace(
        bucket,
        wire_bytes=12,
        bus_bytes=12.0,
        stages=tuple(
            s if s.wire_bytes is None else replace(s, wire_bytes=12) for s in bucket.stages
        ),
    )
    data = encode(sample.make_run(), [(step, (bucket, other, wider))])
    assert data.count(b'"kind":"sends"') == 1
    assert decode(data).buckets == [bucket, other, wider]


def test_many_ways_of_sending_are_forgotten_and_said_again() -> None:
    """So that memory is bounded; each bucket still names its own."""
    step, (bucket, _) = sample.make_step()
    collective = [s.collective is not None for s in bucket.stages].index(True)
    many = [
        replace(
            bucket,
            stages=tuple(
                replace(s, dtype=f"odd{n % 300}") if i == collective else s
                for i, s in enumerate(bucket.stages)
            ),
        )
        for n in range(600)
    ]
    data = encode(sample.make_run(), [(step, many)])
    assert decode(data).buckets == many


def test_a_bucket_with_three_stages_takes_at_most_260_bytes() -> None:
    """With clocks of a host that has been up for 100 days, and a model with a name."""
    up_ns = 100 * 86_400 * 10**9
    bucket = sample.make_bucket(step=123_456, bucket=24, bucket_count=25)
    compress, _, wire, decompress = bucket.stages
    ends = [bucket.ready_ns + 123_456_789 * i for i in range(1, 4)]
    stages = [
        replace(s, start_ns=end - 123_456_789, end_ns=end)
        for s, end in zip((compress, wire, decompress), ends, strict=True)
    ]
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
    encoder.buckets([late])  # and what its stages have in common with those of others
    line = encoder.buckets([late])
    assert len(line) <= 260, line
