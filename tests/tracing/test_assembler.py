"""Calls become steps, against an integer clock: every number is exact."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from hooktrace import BucketRecord, Tracer, trace
from hooktrace.records import AnomalyRecord, Stage, StepRecord
from hooktrace.staging.slots import ModelState
from hooktrace.staging.units import ShardedModel
from hooktrace.tracing import assembler as module
from hooktrace.tracing.assembler import Assembler, StallWatch
from hooktrace.tracing.drain import LossLedger
from tests.exporters.records_sample import make_step
from tests.fakes import FakeOperation, Job, buckets_of, fake_clock, hook_of, plain
from tests.staging.test_units import Sink, step


def spans(record: BucketRecord) -> list[tuple[str, int, int]]:
    return [(s.name, s.start_ns, s.end_ns) for s in record.stages]


def test_a_staged_bucket_step_by_step() -> None:
    """Each stamp lands where it belongs; wire bytes are the payload's."""
    clock = fake_clock()
    operation = FakeOperation(wire_bytes=16)
    with Tracer(clock=clock) as tracer:
        clock.advance(100)
        trace(hook_of([operation], clock, 5, 7), tracer=tracer, model="net")(None, buckets_of(1)[0])
        clock.advance(30)
        operation.complete()
        (record,) = tracer.buckets()
        (step,) = tracer.steps()
    assert (record.ready_ns, record.launched_ns, record.done_ns) == (100, 105, 142)
    payload: Any = {"collective": "all_reduce", "wire_bytes": 16, "dtype": "float16"}
    assert record.stages == (
        Stage(name="compress", start_ns=100, end_ns=105),
        Stage(name="wire", start_ns=105, end_ns=135, derived=True, **payload),
        Stage(name="decompress", start_ns=135, end_ns=142),
    )
    assert (record.gradient_bytes, record.wire_bytes, record.bus_bytes) == (32, 16, 16.0)
    assert (step.communication_ns, step.exposed_ns, step.overlap_ratio) == (42, 42, 0.0)


def test_a_plain_bucket_step_by_step() -> None:
    """Of a plain hook the call, its return and its completion are seen, and no wire bytes."""
    clock = fake_clock()
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()

    def hook(state: Any, bucket: Any) -> Any:
        clock.advance(4)
        return future

    with Tracer(clock=clock) as tracer:
        traced = trace(hook, tracer=tracer)(None, buckets_of(1)[0])
        clock.advance(50)
        result = torch.zeros(8)
        future.set_result(result)
        assert traced.wait() is result
        (record,) = tracer.buckets()
    assert spans(record) == [("hook", 0, 4), ("future_wait", 4, 54)]
    assert (record.wire_bytes, record.bus_bytes, record.done_ns) == (None, None, 54)


def test_a_sharded_model_warms_up_for_two_steps_whatever_it_gathers() -> None:
    """The second one has a collective more, and so begins a rebuild."""
    sink, assembler = Sink(), Assembler(LossLedger(dict))
    model = ShardedModel(ModelState("net", "fully_shard", 0), sink)
    for numel in (4, 8, 4):
        step(model, numel)
    for made in sink.steps():
        assembler.add(made)
    assembler.complete_passed()
    completed, _ = assembler.take()
    assert [(s.rebuild, s.warmup) for s, _ in completed] == [(0, True), (1, True), (1, False)]


class Result:
    """A result of a probe that comes when it is told to."""

    slot, step = SimpleNamespace(model=object()), 0

    def __init__(self) -> None:
        self.come, self.has = False, ["waited"]

    def has_arrived(self) -> bool:
        return self.come

    def read(self) -> None:
        self.has.append("read")

    def arrive(self, into: Assembler) -> None:
        self.has.append("arrived")

    def let_go(self) -> None:
        self.has.append("let go")


def test_results_come_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has not come holds back those after it; of too many, the oldest go."""
    monkeypatch.setattr(module, "_KEPT", 4)
    found: list[Any] = [Result() for _ in range(5)]
    assembler = Assembler(LossLedger(dict))
    found[0].come = found[2].come = True
    for result in found:
        assembler.add_result(result)
    assert [one.has[1:] for one in found] == [["read", "arrived"], [], [], [], []]
    assembler.add_result(Result())
    assert [one.has[1:] for one in found[1:]] == [["let go"], ["read", "arrived"], [], []]
    assembler.finish()
    assert [one.has[1:] for one in found[3:]] == [["let go"]] * 2
    assembler.losses.publish()
    assert assembler.losses.published == {"device_unresolved": 4}


def test_a_step_that_fails_is_closed_before_the_next() -> None:
    """A backward pass that stops after its first bucket gives an incomplete step, not timed."""
    with Tracer() as tracer:
        job = Job(tracer, buckets=2)
        job.step()
        job.hook(None, job.buckets[0])
        for _ in range(3):
            job.step()
        steps = tracer.steps()
        found = [(s.step, s.complete, s.bucket_count) for s in steps]
        assert found == [(0, True, 2), (1, False, 1), (2, True, 2), (3, True, 2), (4, True, 2)]
        assert [s.step for s in steps if s.previous_period_ns is not None] == [3, 4]
        assert tracer.summary()[0].steps == 3


def test_of_steps_that_stay_open_the_oldest_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models that keep being made, and stop in a step, do not fill the memory."""
    monkeypatch.setattr(module, "_MOST_OPEN", 3)
    with Tracer() as tracer:
        for model in range(5):
            trace(plain, tracer=tracer, model=f"net{model}")(None, buckets_of(2)[0])
        assert [(s.model, s.complete) for s in tracer.steps()] == [("net0", False), ("net1", False)]


def test_a_bucket_that_ends_after_a_later_step_is_counted() -> None:
    """Its step goes on without it, and is not complete."""
    first: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    futures = iter([first])
    one, two = buckets_of(2)
    with Tracer() as tracer:
        hook = trace(lambda s, b: next(futures, None) or plain(s, b), tracer=tracer)
        hook(None, one)
        hook(None, two)
        assert tracer.steps() == []
        hook(None, one)
        hook(None, two)
        found = [(s.step, s.complete, s.bucket_count) for s in tracer.steps()]
        assert found == [(0, False, 1), (1, True, 2)]
        assert tracer.losses() == {"unfinished": 1}
        first.set_result(one.buffer())
    assert tracer.losses() == {"unfinished": 1}


def test_a_queue_is_behind_another_models_collectives_too() -> None:
    """Its step has not ended, and two of them hold both workers."""
    clock = fake_clock()
    others, own = [FakeOperation(8) for _ in range(3)], FakeOperation(8)
    with Tracer(clock=clock) as tracer:
        other = trace(hook_of(others, clock), tracer=tracer)
        one, two, three = buckets_of(3)
        other(None, one)
        other(None, two)
        trace(hook_of([own], clock), tracer=tracer, model="own")(None, buckets_of(1)[0])
        other(None, three)
        for operation, clock.now_ns in zip((*others[:2], own), (100, 110, 150), strict=True):
            operation.complete()
        (record,) = tracer.buckets("own")
        others[2].complete()
    assert spans(record)[1:3] == [("queue", 0, 100), ("wire", 100, 150)]


class Odd(FakeOperation):
    """A collective of the user's own that has no group."""

    def describe(self) -> Any:
        return super().describe()._replace(group=None)


def test_what_cannot_be_told_of_a_model_costs_no_other_one() -> None:
    """It is counted; the other models' steps go out."""
    odd = Odd(8)
    with Tracer(error_every=0) as tracer:
        good, bad = Job(tracer), trace(hook_of([odd]), tracer=tracer)
        good.step()
        bad(None, buckets_of(1)[0])
        odd.complete()
        for _ in range(3):
            good.step()
        assert [(s.model, s.step) for s in tracer.steps()] == [("model0", n) for n in range(4)]
        assert tracer.losses() == {"internal_error": 1}


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
        found = [(s.step, s.complete, s.bucket_count) for s in steps]
        assert found == [(0, True, 2), (1, False, 2)]
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


def test_each_stalled_step_is_named_and_nobody_is_blamed() -> None:
    """This rank waited, for whom it cannot tell; ordinary steps are not named."""
    made = steps()
    made[15] = replace(made[15], exposed_ns=3 * SECOND, checked=True)
    made[17] = replace(made[17], exposed_ns=SECOND)
    mark, sampled = marks(made)
    assert (mark.kind, mark.step, mark.bucket, mark.rank) == ("stall", 12, -1, 3)
    assert "step 12: 10,000 ms of exposed communication, where 2.00 ms is usual" in mark.message
    assert "; this rank waited, and cannot tell for whom" in mark.message
    assert sampled.step == 15
    assert "hooktrace sampled the step, which may be a part of it" in sampled.message


@pytest.mark.parametrize("changes", [{"warmup": True}, {"join_dummy": True}, {"complete": False}])
def test_steps_that_do_not_count_are_no_stalls(changes: dict[str, bool]) -> None:
    """DDP's first steps connect and wait; a step without data, or without a bucket, is no step."""
    assert marks(steps(**changes)) == []
