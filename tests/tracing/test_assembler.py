"""Record times against an integer clock: every number is exact."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hooktrace import BucketRecord, Tracer, staged, trace
from hooktrace.records import AnomalyRecord, Stage
from hooktrace.staging.calls import BucketCall
from hooktrace.staging.slots import ModelState
from hooktrace.staging.units import ShardedModel
from hooktrace.tracing import assembler as module
from hooktrace.tracing.assembler import Assembler
from hooktrace.tracing.export import LossLedger
from tests.fakes import FakeOperation, Job, buckets_of, fake_clock
from tests.staging.test_units import UNIT, Sink, step


@pytest.fixture
def assembler() -> Assembler:
    """What nothing was lost of."""
    return Assembler(LossLedger(dict))


@pytest.fixture
def sharded() -> tuple[ShardedModel, Sink]:
    """A sharded model that has made no step, and what it pushes."""
    sink = Sink()
    return ShardedModel(ModelState("net", "fully_shard", {}, 0), sink), sink


def spans(record: BucketRecord) -> list[tuple[str, int, int]]:
    return [(s.name, s.start_ns, s.end_ns) for s in record.stages]


def test_a_staged_bucket_step_by_step() -> None:
    """Each stamp lands where it belongs; wire bytes are the payload's."""
    clock = fake_clock()
    operation = FakeOperation(wire_bytes=16)

    @staged
    def hook(state: Any, bucket: Any) -> Any:
        clock.advance(5)
        yield operation
        clock.advance(7)
        return bucket.buffer()

    with Tracer(clock=clock) as tracer:
        clock.advance(100)
        trace(hook, tracer=tracer, model="net")(None, buckets_of(1)[0])
        clock.advance(30)
        operation.complete()
        (record,) = tracer.buckets()
        (step,) = tracer.steps()
    assert (record.ready_ns, record.launched_ns, record.done_ns) == (100, 105, 142)
    assert record.stages == (
        Stage(name="compress", start_ns=100, end_ns=105),
        Stage(
            name="wire",
            start_ns=105,
            end_ns=135,
            derived=True,
            collective="all_reduce",
            wire_bytes=16,
            dtype="float16",
        ),
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


class WaitingEvent:
    """An event that the device has not passed, and that counts how often it is asked."""

    asked = 0

    def query(self) -> bool:
        WaitingEvent.asked += 1
        return False


def test_the_device_is_asked_once_a_step_and_drain(assembler: Assembler) -> None:
    """Not for each call that ends while a step waits for it: of 4,000 buckets that took seconds."""
    with Tracer() as tracer:
        job = Job(tracer, buckets=50)
        job.step()
        for step in range(2):
            for slot in job.hook._layout.models[0].slots.values():
                call = BucketCall(slot, step, 0, tracer)
                call.events, call.done = [WaitingEvent()], 1
                assembler.add(call)
    assembler.take()
    assert WaitingEvent.asked == 3


def test_a_sharded_model_warms_up_for_two_steps_whatever_it_gathers(
    assembler: Assembler, sharded: tuple[ShardedModel, Sink]
) -> None:
    """The second one has a collective more, and so begins a rebuild."""
    model, sink = sharded
    for numel in (4, 8, 4):
        step(model, numel)
    for made in sink.steps():
        assembler.add(made)
    completed, _ = assembler.take()
    assert [(s.rebuild, s.warmup) for s, _ in completed] == [(0, True), (1, True), (1, False)]


def test_a_collective_that_raised_is_not_called_a_hook_of_ddp_s(
    assembler: Assembler, sharded: tuple[ShardedModel, Sink]
) -> None:
    """Of a unit it is FSDP's own, unless a hook's code raised; there is no DDP model to make."""
    model, sink = sharded
    for stage in ("wire", "compress"):
        model.takes(UNIT, "all_gather")
        begun = model.begin(UNIT, torch.zeros(4 if stage == "wire" else 8), 0)
        assert begun is not None
        begun.failed(stage, RuntimeError("connection closed"))
        model.miss()
        model.end_step()
    for made in sink.steps():
        assembler.add(made)
    _, anomalies = assembler.take()
    wire, compress = (one.message for one in anomalies if isinstance(one, AnomalyRecord))
    assert "the collective raised: RuntimeError: connection closed" in wire
    assert "the hook raised in stage compress" in compress
    assert "DDP" not in wire + compress


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


def test_results_come_in_their_order(assembler: Assembler, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has not come holds back those after it; of too many, the oldest go."""
    monkeypatch.setattr(module, "_MOST_AWAITED", 4)
    found: list[Any] = [Result() for _ in range(5)]
    found[0].come = found[2].come = True
    for result in found:
        assembler.add_result(result)
    assert [one.has[1:] for one in found] == [["read", "arrived"], [], [], [], []]
    assembler.add_result(Result())
    assert [one.has[1:] for one in found[1:]] == [["let go"], ["read", "arrived"], [], []]
    assembler.finish()
    assert [one.has[1:] for one in found[3:]] == [["let go"]] * 2
    assert assembler.losses.totals() == {"device_unresolved": 4}
