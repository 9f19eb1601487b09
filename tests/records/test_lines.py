"""The line of a bucket: short, and whole with the line that it names."""

from __future__ import annotations

from msgspec.structs import replace

from hooktrace.records import Stage, Unit
from hooktrace.records.codec import RecordEncoder
from tests.exporters import records_sample as sample

from .text import decode, encode


def test_what_calls_share_is_said_once() -> None:
    """In a file: facts, names of stages, and what a byte is on the bus; calls of others say it."""
    step, (bucket, other) = sample.make_step()
    wire = [s if s.wire_bytes is None else replace(s, wire_bytes=12) for s in bucket.stages]
    alike = [
        replace(bucket, rebuild=2),
        replace(bucket, wire_bytes=12, bus_bytes=12.0, stages=tuple(wire)),
    ]
    unit = Unit(name="block", collective="all_gather", phase="forward")
    odd = [
        replace(bucket, dtype="float64"),
        replace(bucket, numel=7),
        replace(bucket, bus_bytes=None),
        replace(bucket, stages=bucket.stages[1:]),
        replace(bucket, unit=unit, members=(0, 64, 8)),
    ]
    data = encode(sample.make_run(), [(step, (bucket, other, *alike, *odd, *alike, *odd))])
    assert data.count(b'"kind":"shared"') == 2 + len(odd)
    assert data.count(b'"hook":"fp16_compress_hook"') == 2 + len(odd) + 1, "and of the step"
    assert decode(data).buckets == [bucket, other, *alike, *odd, *alike, *odd]


def test_buckets_outlive_what_they_share() -> None:
    """A damaged line takes no bucket with it: the sizes are unknown, the times are there."""
    step, (bucket, other) = sample.make_step()
    data = encode(sample.make_run(), [(step, (bucket, other))])
    unknown = {"hook": "unknown", "dtype": "unknown", "bus_bytes": None, "is_last": False}
    unknown |= dict.fromkeys(("numel", "gradient_bytes", "parameter_count"), 0)
    bare = tuple(Stage(name=s.name, start_ns=s.start_ns, end_ns=s.end_ns) for s in bucket.stages)
    for said, damaged in ((b'"kind":"shared"', b'"kind":"sha\x00ed"'), (b'"numel"', b'"numul"')):
        found = decode(data.replace(said, damaged, 1))
        assert [line for line, _ in found.skipped] == [2]
        assert found.buckets == [replace(bucket, stages=bare, **unknown), other]


def test_stages_that_are_not_as_many_as_their_times_are_named() -> None:
    """Of several rounds, or of a whole column, whichever lost one; nothing is guessed."""
    step, (bucket, other) = sample.make_step()
    rounds = replace(bucket, stages=bucket.stages[1:] + bucket.stages)
    data = encode(sample.make_run(), [(step, (rounds, other))])
    assert decode(data).buckets == [rounds, other]
    for line, shorter in (
        (b'"stage_ns":[[400000,', b'"stage_ns":[['),
        (b'"stage_starts_ns":[[100000,', b'"stage_starts_ns":[['),
        (b'"launch_ns":[150000,', b'"launch_ns":['),
        (b'"stage_ns":', b'"lost_ns":'),
    ):
        assert line in data
        found = decode(data.replace(line, shorter, 1))
        assert found.buckets == []
        assert [line for line, _ in found.skipped] == [4]
    found = decode(
        data.replace(b'"stages":[{"name":"queue"', b'"stages":[{"name":"wire"},{"name":"queue"', 1)
    )
    assert found.buckets == [replace(rounds, stages=()), other], "names are lost: no stages"


def test_many_ways_of_sending_are_forgotten_and_said_again() -> None:
    """So that memory is bounded; each bucket still names its own."""
    step, (bucket, _) = sample.make_step()
    many = [replace(bucket, hook=f"odd{n % 4500}") for n in range(5000)]
    data = encode(sample.make_run(), [(step, many)])
    assert decode(data).buckets == many
    assert data.count(b'"kind":"shared"') == 5000


def test_a_bucket_with_three_stages_takes_at_most_100_bytes() -> None:
    """With clocks of a host that has been up for 100 days, and a model with a name."""
    up_ns, took_ns = 100 * 86_400 * 10**9, 123_456_789
    bucket = sample.make_bucket(step=123_456, bucket=24, bucket_count=25)
    ready_ns, done_ns = bucket.ready_ns + up_ns, bucket.done_ns + up_ns
    compress, _, wire, decompress = bucket.stages
    stages = tuple(
        replace(s, start_ns=ready_ns + i * took_ns, end_ns=ready_ns + (i + 1) * took_ns)
        for i, s in enumerate((compress, replace(wire, wire_bytes=26_214_400), decompress))
    )
    late = replace(
        bucket, model="char_transformer", ready_ns=ready_ns, launched_ns=ready_ns + 150_000,
        done_ns=done_ns, stages=stages, wire_bytes=26_214_400, bus_bytes=39_321_600.0,
    )  # fmt: skip
    encoder = RecordEncoder()
    encoder.buckets([late])  # and what it shares with others
    assert len(encoder.buckets([late] * 25)) <= 25 * 100
