"""Times of a step: overlap, exposed, period."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from hooktrace import Tracer, staged, trace
from hooktrace.probes.step_sampler import CallStart, Look, Part, StepSampler
from hooktrace.testing import FakeClock
from hooktrace.tracing.sampling_plan import SamplingPlan
from tests.fakes import FakeOperation, Job, buckets_of, fake_clock, hook_of, opaque
from tests.staging.test_backward import chain


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
        chain(
            lambda: traced(None, bucket),
            lambda: done < 100 and arrive(),
            lambda: seen.extend(tracer.steps()),
            lambda: setattr(clock, "now_ns", 100),
        ).backward()
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
            chain(job.step, lambda: 1 // 0).backward()
        (step,) = tracer.steps()
    assert step.complete
    assert step.exposed_ns is None


def test_the_wait_for_a_turn_is_a_stage_of_its_own() -> None:
    """From the hook's call to its turn, by stamps: no queue of the backend, and not derived."""
    clock = fake_clock()
    operations = [FakeOperation(wire_bytes=4) for _ in range(3)]
    waiting = iter(operations)

    @staged(multi_round=True)
    def hook(state: Any, bucket: Any) -> Iterator[Any]:
        clock.advance(5)
        yield next(waiting)
        return bucket.buffer()

    with Tracer(clock=clock) as tracer:
        traced = trace(hook, tracer=tracer)
        first, second, last = buckets_of(3)
        traced(None, first)
        clock.now_ns = 40
        traced(None, second)
        clock.now_ns = 90
        operations[0].complete()
        clock.now_ns = 120
        operations[1].complete()
        operations[2].complete()
        traced(None, last)
        one, two, _ = tracer.buckets()
    assert [(s.name, s.start_ns, s.end_ns, s.derived) for s in two.stages] == [
        ("turn", 40, 90, False),
        ("compress", 90, 95, False),
        ("wire", 95, 120, True),
        ("decompress", 120, 120, False),
    ]
    assert one.stage_ns("turn") == one.stage_ns("queue") == two.stage_ns("queue") == 0


class _Look(Look):
    """Takes 7 ns for a result."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock

    def join(self, future: Any) -> Any:
        return future.then(self._looked)

    def _looked(self, future: Any) -> Any:
        self._clock.advance(7)
        return future.value()


class _Part(Part):
    """Looks at each bucket of each second step, for 30 ns before its hook is called."""

    next_step = 1

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock

    def enter(self, start: CallStart, sink: Any) -> bool:
        """Look, and go on to the next step but one."""
        self.next_step = start.step + 2
        self._clock.advance(30)
        start.looks.append(_Look(self._clock))
        return True


@pytest.mark.parametrize("is_staged", [True, False])
def test_what_hooktrace_does_itself_is_a_stage_and_its_step_does_not_count(
    is_staged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither compress nor the hook's call has it; the bucket is done when DDP has its result."""
    clock = fake_clock()

    def begin(self: SamplingPlan, state: Any, slot: Any, bucket: Any) -> None:
        slot.model.sampling, slot.model.sample_step = StepSampler([_Part(clock)]), 1
        clock.advance(50)

    monkeypatch.setattr(SamplingPlan, "begin", begin)

    @staged
    def hook(state: Any, bucket: Any) -> Iterator[Any]:
        clock.advance(5)
        operation = FakeOperation(wire_bytes=4)
        operation.complete()
        yield operation
        return bucket.buffer()

    def slow(state: Any, bucket: Any) -> Any:
        clock.advance(5)
        return opaque(state, bucket)

    (bucket,) = buckets_of(1)
    with Tracer(clock=clock) as tracer:
        traced = trace(hook if is_staged else slow, tracer=tracer)
        for step in range(4):
            clock.now_ns = 1000 * step
            traced(None, bucket).wait()
        steps, buckets = tracer.steps(), tracer.buckets()
    assert [(s.probed, s.settled, s.counts) for s in steps] == [
        (True, False, False), (True, False, False), (False, True, True), (True, True, False)
    ]  # fmt: skip
    assert [b.probed for b in buckets] == [True, True, False, True]
    assert [b.stage_ns("probe") for b in buckets] == [50, 37, 0, 37]
    probed = [(s.name, s.start_ns - 3000, s.end_ns - 3000) for s in buckets[3].stages]
    own = [("compress", 30, 35), ("wire", 35, 35), ("decompress", 35, 35)]
    own = own if is_staged else [("hook", 30, 35), ("pending", 35, 35)]
    assert probed == [("probe", 0, 30), *own, ("probe", 35, 42)]
    assert (buckets[3].ready_ns, buckets[3].done_ns) == (3000, 3042)
    assert "probe" not in buckets[2].stage_totals_ns()
