"""Calls gathered into steps."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from msgspec.structs import replace

from hooktrace import Tracer, trace
from hooktrace.records import AnomalyRecord, StepRecord
from hooktrace.records.last_used import MOST_MODELS
from hooktrace.staging.slots import ModelState
from hooktrace.tracing.assembler import StallWatch, StepGatherer
from tests.exporters.records_sample import make_step
from tests.fakes import FakeOperation, Job, buckets_of, hook_of


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
        assert [s.step for s in steps if s.previous_period_ns is not None] == [3, 4]
        assert tracer.summary()[0].steps == 3


class CountedSlot:
    """One of ``count`` buckets, which notes how often it is asked whether it is the last."""

    asked = 0

    def __init__(self, index: int, count: int, model: str = "net") -> None:
        self.index = index
        self.count = count
        self.model = ModelState(model, "hook", {}, 0)
        self.rebuild = 0

    @property
    def is_last(self) -> bool:
        CountedSlot.asked += 1
        return self.index == self.count - 1


class Call(NamedTuple):
    """What the gatherer reads of a call."""

    slot: CountedSlot
    step: int
    error: str | None = None


def test_gathering_asks_of_each_bucket_once() -> None:
    """However many buckets a step has: thousands of them took a quarter of a second."""
    gatherer, count = StepGatherer(), 500
    calls: list[Any] = [Call(CountedSlot(index, count), 0) for index in range(count)]
    before = CountedSlot.asked
    ended = [gatherer.add(call) for call in calls]
    assert CountedSlot.asked - before == count + 1
    assert ended[:-1] == [[]] * (count - 1)
    assert ended[-1] == [calls]


def test_models_that_keep_being_made_are_forgotten() -> None:
    """The one without a step for longest, whose open step is ended; one that goes on stays."""
    gatherer = StepGatherer()
    whole: Any = CountedSlot(0, 1, "kept")
    for n in range(MOST_MODELS + 50):
        begun: Any = Call(CountedSlot(0, 2, f"net#{n}"), 0)
        ended = gatherer.add(begun)
        forgotten = n - MOST_MODELS + 1
        assert ended is not None
        assert [c.slot.model.name for calls in ended for c in calls] == (
            [f"net#{forgotten}"] if forgotten >= 0 else []
        )
        kept: Any = Call(whole, n)
        assert gatherer.add(kept) == [[kept]]
    assert len(gatherer._models) == MOST_MODELS
    assert gatherer.add(kept) is None


class Broken(FakeOperation):
    """A collective whose connection has broken."""

    def result(self, future: Any) -> torch.Tensor:
        raise ConnectionError("reset by peer")


def test_a_step_whose_collective_failed_is_not_complete() -> None:
    """All buckets are there, and yet it was no step: nothing of it enters statistics."""
    with Tracer(error_every=0) as tracer:
        operations = [FakeOperation(8), FakeOperation(8), Broken(8), FakeOperation(8)]
        hook = trace(hook_of(operations), tracer=tracer)
        for bucket in 2 * buckets_of(2):
            hook(None, bucket)
        for operation in operations:
            operation.complete()
        steps = tracer.steps()
        assert [(s.step, s.complete, s.bucket_count) for s in steps] == [
            (0, True, 2),
            (1, False, 2),
        ]
        (anomaly,) = tracer.anomalies()
        assert "the collective raised: ConnectionError: reset by peer" in anomaly.message


SECOND = 10**9
SLOT: Any = SimpleNamespace(model=SimpleNamespace(rank=3))


def steps(count: int = 20, **changes: Any) -> list[StepRecord]:
    """Return sample steps, of which 12 waits for 10 s."""
    made = [replace(make_step(i)[0], **changes) for i in range(count)]
    made[12] = replace(made[12], exposed_ns=10 * SECOND)
    return made


def marks(made: list[StepRecord]) -> list[AnomalyRecord]:
    """Return what is said of steps."""
    watch = StallWatch()
    return [mark for step in made if (mark := watch.of_step(SLOT, step)) is not None]


def test_a_stalled_step_is_named_with_its_number_and_nobody_is_blamed() -> None:
    """This rank waited; for whom, it cannot tell."""
    (mark,) = marks(steps())
    assert (mark.kind, mark.step, mark.bucket, mark.rank) == ("stall", 12, -1, 3)
    assert "step 12: 10,000 ms of exposed communication, where 2.00 ms is usual" in mark.message
    assert "; this rank waited, and cannot tell for whom" in mark.message


def test_each_stall_is_said_and_ordinary_steps_are_not() -> None:
    """Another one later is another step's."""
    made = steps()
    made[15] = replace(made[15], exposed_ns=3 * SECOND)
    made[17] = replace(made[17], exposed_ns=SECOND)
    assert [mark.step for mark in marks(made)] == [12, 15]


def test_steps_that_do_not_count_are_no_stalls() -> None:
    """DDP's first steps connect and wait; a step without data, or without a bucket, is no step."""
    for changes in ({"warmup": True}, {"join_dummy": True}, {"complete": False}):
        assert marks(steps(**changes)) == []


def test_a_checked_step_may_be_long_by_the_probe() -> None:
    """It is said that it was checked, and does not count for what is usual."""
    made = steps()
    made[12] = replace(made[12], checked=True)
    (mark,) = marks(made)
    assert "hooktrace sampled the step, which may be a part of it" in mark.message
