"""The last records, in memory."""

from __future__ import annotations

from hooktrace import Tracer
from tests.fakes import Job


def test_memory_is_bounded() -> None:
    """The store keeps the last steps only, by either bound."""
    with Tracer(keep_steps=10, keep_buckets=12) as tracer:
        job = Job(tracer, buckets=4)
        for _ in range(20):
            job.step()
        assert [s.step for s in tracer.steps()] == [17, 18, 19]
        assert len(tracer.buckets()) == 12
