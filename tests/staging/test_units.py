"""The steps of a sharded model, from the calls that FSDP makes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hooktrace.records import AssignmentRecord, Parameter
from hooktrace.records.bucket import UnitCollective
from hooktrace.staging import units
from hooktrace.staging.backward import queue_callback
from hooktrace.staging.calls import StepCalls
from hooktrace.staging.devices import EventPool
from hooktrace.staging.ring import RECORDING
from hooktrace.staging.slots import ModelState
from hooktrace.staging.units import ShardedModel, UnitInfo

UNIT = UnitInfo("block", (("block.weight", (2, 2)),))


class Sink:
    """Keeps what is pushed."""

    def __init__(self) -> None:
        self.pushed: list[Any] = []
        self.push = self.pushed.append
        self.event_pool = EventPool()
        self.state, self.started = RECORDING, True
        self.now = 0

    def clock(self) -> int:
        self.now += 1
        return self.now

    def steps(self) -> list[StepCalls]:
        return [entry for entry in self.pushed if isinstance(entry, StepCalls)]

    def assignments(self) -> list[AssignmentRecord]:
        return [entry for entry in self.pushed if isinstance(entry, AssignmentRecord)]


@pytest.fixture
def sink() -> Sink:
    """A ring that is a list."""
    return Sink()


@pytest.fixture
def model(sink: Sink) -> ShardedModel:
    """A model that has made no step."""
    return ShardedModel(ModelState("net", "fully_shard", 0), sink)


def call(model: ShardedModel, collective: UnitCollective, numel: int = 4) -> None:
    """Make a call as FSDP does."""
    begun = model.begin(model.places_of(UNIT, collective), torch.zeros(numel), ready=0)
    assert begun is not None
    begun.finished()


class Reduces(torch.autograd.Function):
    """Calls something in the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, then: Any) -> torch.Tensor:
        ctx.then = then
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        ctx.then()
        return gradients[0], None


def backward(then: Any) -> None:
    """Run a backward pass that calls something."""
    Reduces.apply(torch.zeros(1, requires_grad=True), then).sum().backward()


def step(model: ShardedModel, *gathers: int) -> None:
    """Make a step: gathers of some sizes, and a reduction in a backward pass."""
    for numel in gathers:
        call(model, "all_gather", numel)
    backward(lambda: call(model, "reduce_scatter"))


def test_sizes_that_change_in_each_step_do_not_fill_files(model: ShardedModel, sink: Sink) -> None:
    """So many begin a rebuild; all others have one number, and say themselves what they are."""
    sizes = range(4, 104)
    for size in sizes:
        backward(lambda size=size: call(model, "reduce_scatter", size))
    calls = [one for step in sink.steps() for one in step]
    assert [one.slot.numel for one in calls] == [*sizes]
    others = units.MOST_SIZES
    assert [one.slot.index for one in calls] == [*range(others), *[others] * (100 - others)]
    assert len(sink.assignments()) == others + 1
    assert [one.slot.rebuild for one in calls][-1] == others
    assert len(model.state.slots) == others + 1
    _, backwards = model.places_of(UNIT, "reduce_scatter")
    assert len(backwards.slots) == others
    # A size that has a number keeps it.
    backward(lambda: call(model, "reduce_scatter", 7))
    (again,) = sink.steps()[-1]
    assert (again.slot.index, again.slot.numel) == (3, 7)


def test_a_step_ends_with_the_pass_that_reduced(model: ShardedModel, sink: Sink) -> None:
    """Its calls come as one entry, after the layout of the first."""
    for _ in range(2):
        step(model, 4)
    assert [[c.slot.unit.collective for c in step] for step in sink.steps()] == [
        ["all_gather", "reduce_scatter"]
    ] * 2
    assert [c.step for step in sink.steps() for c in step] == [0, 0, 1, 1]
    assert all(step.complete for step in sink.steps())
    assert isinstance(sink.pushed[0], AssignmentRecord)
    assert [b.unit.phase for b in sink.assignments()[0].buckets] == ["forward", "backward"]
    assert sink.assignments()[0].buckets[0].parameters == (Parameter("block.weight", (2, 2)),)


def test_a_step_with_new_calls_begins_a_rebuild(model: ShardedModel, sink: Sink) -> None:
    """What was there keeps its number, and a payload of another size is another call."""
    for numel in (4, 4, 8):
        step(model, numel)
    assert [layout.rebuild for layout in sink.assignments()] == [0, 1]
    assert [step.rebuild for step in sink.steps()] == [0, 0, 1]
    assert [c.slot.index for c in sink.steps()[-1]] == [2, 1]


def test_a_pass_that_was_left_keeps_no_step_open(model: ShardedModel, sink: Sink) -> None:
    """One that raised after all was computed tells nobody of its end."""

    def queues() -> None:
        call(model, "all_gather")
        assert queue_callback is not None
        queue_callback(lambda: 1 // 0)

    with pytest.raises(ZeroDivisionError):
        backward(queues)
    model.forward_begins(1)
    model.called = None
    backward(lambda: call(model, "reduce_scatter"))
    assert [len(step) for step in sink.steps()] == [2]
