"""Times of a step: overlap, exposed, period."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from hooktrace import Tracer, staged, trace
from tests.fakes import FakeOperation, Job, buckets_of, fake_clock, hook_of


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
    """The next step knows it; warm-up (0, 1) has none, and later buckets do not matter."""
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


def do(work: Callable[[], object], gradient: torch.Tensor) -> None:
    """Work in a backward pass."""
    work()


def in_backward(*works: Callable[[], object]) -> None:
    """Do these works one after another in a backward pass."""
    at = torch.ones(1, requires_grad=True)
    for work in reversed(works):
        at = at * 2
        at.register_hook(partial(do, work))
    at.backward()


@pytest.mark.parametrize(("done", "exposed"), [(60, 0), (95, 0), (130, 35)])
def test_backward_that_goes_on_hides_communication(done: int, exposed: int) -> None:
    """To its end at 100, less the 5 that the hook's own call took; no record comes before."""
    clock, operation = fake_clock(), FakeOperation(wire_bytes=4)

    def hook(state: object, bucket: Any) -> Any:
        clock.now_ns = 15
        yield operation
        return bucket.buffer()

    def arrive() -> None:
        clock.now_ns = done
        operation.complete()

    seen = []
    with Tracer(clock=clock) as tracer:
        traced, (bucket,) = trace(staged(hook), tracer=tracer), buckets_of(1)
        clock.now_ns = 10
        in_backward(
            lambda: traced(None, bucket),
            lambda: done < 100 and arrive(),
            lambda: seen.extend(tracer.steps()),
            lambda: setattr(clock, "now_ns", 100),
        )
        if done > 100:
            arrive()
        (step,) = tracer.steps()
    assert seen == []
    assert (step.last_ready_ns, step.done_ns, step.exposed_ns) == (10, done, exposed)


def test_exposed_is_unknown_where_backward_failed() -> None:
    """It has no end to count from."""
    with Tracer() as tracer:
        job = Job(tracer)
        with pytest.raises(ZeroDivisionError):
            in_backward(job.step, lambda: 1 // 0)
        (step,) = tracer.steps()
    assert step.complete
    assert step.exposed_ns is None
