"""Calls gathered into steps."""

from __future__ import annotations

from hooktrace import Tracer
from tests.fakes import Job


def test_a_step_that_fails_is_closed_before_the_next() -> None:
    """A backward pass that stops after its first bucket gives an incomplete step, not timed."""
    with Tracer() as tracer:
        job = Job(tracer, buckets=2)
        job.step()
        job.hook(None, job.buckets[0])
        for _ in range(3):
            job.step()
        steps = tracer.steps()
        assert [(s.step, s.complete, s.bucket_count) for s in steps] == [
            (0, True, 2),
            (1, False, 1),
            (2, True, 2),
            (3, True, 2),
            (4, True, 2),
        ]
        assert [s.step for s in steps if s.period_ns is not None] == [3, 4]
        assert tracer.summary()[0].steps == 3
