"""Times of a step: overlap, period."""

from __future__ import annotations

from hooktrace import Tracer, trace
from tests.fakes import FakeOperation, buckets_of, fake_clock, hook_of


def test_overlap_of_two_buckets() -> None:
    """Exposed counts from the last bucket's readiness, busy is the union, never the sum."""
    clock = fake_clock()
    operations = [FakeOperation(wire_bytes=4) for _ in range(2)]
    with Tracer(clock=clock) as tracer:
        hook = trace(hook_of(operations), tracer=tracer)
        buckets = buckets_of(2)
        hook(None, buckets[0])
        clock.now_ns = 60
        hook(None, buckets[1])
        clock.now_ns = 80
        operations[1].complete()
        clock.now_ns = 90
        operations[0].complete()
        (step,) = tracer.steps()
    assert (step.first_ready_ns, step.last_ready_ns, step.done_ns) == (0, 60, 90)
    assert (step.busy_ns, step.exposed_ns) == (90, 30)
    assert step.overlap_ratio == 1 - 30 / 90


def test_period_is_from_first_ready_to_first_ready() -> None:
    """The next step knows it; warm-up (0, 1) has none, and buckets that come later do not matter."""
    clock = fake_clock()
    operations = [FakeOperation(wire_bytes=4) for _ in range(10)]
    with Tracer(clock=clock) as tracer:
        hook = trace(hook_of(operations), tracer=tracer)
        buckets = buckets_of(2)
        for step, start in enumerate((1000, 1500, 2500, 2900, 3900)):
            clock.now_ns = start
            for bucket, operation in zip(buckets, operations[2 * step :], strict=False):
                hook(None, bucket)
                clock.advance(100)
                operation.complete()
        periods = [s.previous_period_ns for s in tracer.steps()]
    assert periods == [None, None, None, 400, 1000]
