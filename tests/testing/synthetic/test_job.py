"""The made-up job's records for given moments, to the nanosecond."""

from __future__ import annotations

import pytest

from hooktrace.testing.synthetic import Moments, SyntheticJob

JOB = SyntheticJob(ranks=2, bucket_bytes=(4000, 8000), wire_share=0.5, wire_dtype="float16")
FIRST = Moments(ready=100, encoded=110, sent=150, arrived=250, done=260)
SECOND = Moments(ready=200, encoded=210, sent=250, arrived=450, done=460)


def test_a_step_follows_from_its_buckets_moments() -> None:
    """Its times, what was sent, and what of it is exposed."""
    step, buckets = JOB.step(7, [FIRST, SECOND], period_ns=1000)
    assert (step.first_ready_ns, step.last_ready_ns, step.done_ns) == (100, 200, 460)
    assert (step.busy_ns, step.exposed_ns, step.wire_busy_ns) == (360, 260, 300)
    assert (step.gradient_bytes, step.wire_bytes, step.bus_bytes) == (12000, 6000, 6000.0)
    assert [(b.step, b.bucket, b.is_last) for b in buckets] == [(7, 0, False), (7, 1, True)]
    assert [b.compression_ratio for b in buckets] == [2.0, 2.0]


@pytest.mark.parametrize(
    ("sent", "names"),
    [(150, ["compress", "queue", "wire", "decompress"]), (110, ["compress", "wire", "decompress"])],
)
def test_stages_fill_the_bucket(sent: int, names: list[str]) -> None:
    """It queues only where its collective did not start at once."""
    bucket = JOB.bucket(0, 0, FIRST._replace(sent=sent))
    assert [stage.name for stage in bucket.stages] == names
    edges = [bucket.ready_ns, *[stage.end_ns for stage in bucket.stages]]
    assert [stage.start_ns for stage in bucket.stages] == edges[:-1]
    assert edges[-1] == bucket.done_ns


def test_the_layout_says_what_the_buckets_say() -> None:
    """As a reader that puts a bucket's facts back relies on."""
    buckets = JOB.step(1, [FIRST, SECOND])[1]
    for said, bucket in zip(JOB.layout().buckets, buckets, strict=True):
        assert (said.bucket, said.numel, said.gradient_bytes, len(said.parameters)) == (
            bucket.bucket, bucket.numel, bucket.gradient_bytes, bucket.parameter_count,
        )  # fmt: skip


def test_each_ranks_clock_is_behind() -> None:
    """By a second for each rank, as its measurements say; rank 0's needs none."""
    assert JOB.clock_records(0) == []
    assert {c.offset_ns for c in JOB.clock_records(1)} == {JOB.offset_ns(1)} == {10**9}
    assert JOB.run(1).host_anchor_ns == JOB.run(0).host_anchor_ns - 10**9
