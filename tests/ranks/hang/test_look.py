"""What a rank knows of its models, from calls as they are stamped."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hooktrace.ranks.hang.look import look, oldest_call, rank_status, training_threads
from hooktrace.records import Unit
from hooktrace.staging.calls import BucketCall
from hooktrace.staging.slots import BucketSlot, ModelState
from hooktrace.testing import FakeBucket, FakeClock
from tests.fakes import FakeGroup, FakeOperation


class Recorder:
    """What calls need of a tracer."""

    def __init__(self) -> None:
        self.clock = FakeClock(step_ns=0)
        self.event_pool: Any = None

    def push(self, call: BucketCall) -> None:
        """Take an ended call."""


@pytest.fixture
def model() -> ModelState:
    """A model of two buckets."""
    made = ModelState("model0", "fp16", {}, 0)
    for index in range(2):
        bucket = FakeBucket([torch.zeros(1)], index, is_last=index == 1)
        made.slots[index] = BucketSlot(made, bucket, index, (index,))
    return made


def begin(model: ModelState, index: int) -> BucketCall:
    slot, step = model.slots[index], model.enter(index)
    slot.last_call = call = BucketCall(slot, step, 0, Recorder())
    return call


def stage(model: ModelState, position: int = 0) -> str:
    (status,) = look([model], 5)
    return status.in_flight[position].stage


def test_stages_of_a_staged_hook(model: ModelState) -> None:
    """From the hook's call to its result."""
    call = begin(model, 0)
    call.hook_called = False
    assert stage(model) == "meeting"
    call.hook_called = True
    assert stage(model) == "compress"
    call.issued(FakeOperation(64, kind="all_gather"))
    (status,) = look([model], 5)
    (seen,) = status.in_flight
    assert (seen.stage, seen.collective, seen.group_size) == ("wire", "all_gather", 2)
    assert (seen.age_ns, seen.rounds) == (5, 0)
    call.arrived()
    assert stage(model) == "decompress"
    call.finished()
    (status,) = look([model], 5)
    assert status.in_flight == ()
    call.held = True
    assert stage(model) == "check"


def test_stages_of_an_plain_hook(model: ModelState) -> None:
    """Whether it has returned is all that is known."""
    call = begin(model, 0)
    call.staged = False
    assert stage(model) == "hook"
    call.launched = 3
    assert stage(model) == "future_wait"
    call.finished()
    assert look([model], 5)[0].in_flight == ()


def test_turn(model: ModelState) -> None:
    """A call of several rounds waits for the one that has begun."""
    begin(model, 0).stamp("started")
    begin(model, 1)
    assert stage(model, 1) == "serialization_wait"


def test_operation_that_cannot_say(model: ModelState) -> None:
    """The user's own, which raises."""
    operation = FakeOperation(64)
    operation.describe = lambda: 1 / 0  # type: ignore[method-assign]
    begin(model, 0).issued(operation)
    (status,) = look([model], 5)
    assert (status.in_flight[0].stage, status.in_flight[0].collective) == ("wire", "")


def test_position(model: ModelState) -> None:
    """The last call's; of steps that were not recorded, what was counted."""
    begin(model, 0)
    begin(model, 1)
    (status,) = look([model], 5)
    assert status.position == (0, 1)
    model.enter(0)  # its call is still looked at by hooktrace
    assert look([model], 5)[0].position == (0, 1)
    for index in (1, 0, 1):
        model.enter(index)
    assert look([model], 5)[0].position == (2, 1)


def test_before_the_first_call(model: ModelState) -> None:
    """Nothing is in flight, and nothing has been."""
    (status,) = look([model], 5)
    assert (status.position, status.last_call_age_ns) == ((-1, -1), None)
    assert oldest_call([model]) is None


def test_two_models_of_one_name(model: ModelState) -> None:
    """Of two tracers: the one that was called last."""
    other = ModelState("model0", "other", {}, 0)
    other.slots = model.slots
    begin(model, 0)
    assert [one.hook for one in look([ModelState("model0", "old", {}, 0), model], 5)] == ["fp16"]


def test_status_of_this_process(model: ModelState) -> None:
    """With where the thread that trains is."""
    call = begin(model, 0)
    assert oldest_call([model]) is call
    status = rank_status(3, [model], 5, paused=True)
    assert (status.rank, status.paused) == (3, True)
    assert [one.bucket for one in status.in_flight] == [0]
    assert training_threads([model]) == [model.slots[0].thread]


class Event:
    """A device's event, which it has passed or not."""

    def __init__(self) -> None:
        self.passed = False

    def query(self) -> bool:
        return self.passed


def test_a_call_waits_until_its_device_has_passed_it(model: ModelState) -> None:
    """Though it has ended for the host; unless the drain has read its events, which are reused."""
    call = begin(model, 0)
    events = [Event(), Event()]
    call.events = events  # type: ignore[assignment]
    call.issued(FakeOperation(64))
    call.arrived()
    call.finished()
    assert stage(model) == "device"
    assert oldest_call([model]) is call
    events[-1].passed = True
    assert oldest_call([model]) is None
    events[-1].passed = False
    call.device_over = True
    (status,) = look([model], 5)
    assert status.in_flight == ()


def test_a_sharded_model_s_place_is_counted_in_its_step() -> None:
    """Its buckets are numbered in the order in which they were met first, of any step."""
    made = ModelState("net", "fully_shard", {}, 0)
    for index, name in enumerate(("a", "b", "c")):
        unit = Unit(name=name, collective="all_gather", phase="forward")
        bucket = FakeBucket([torch.zeros(1)], index, is_last=False)
        made.slots[index] = BucketSlot(made, bucket, index, (), unit)
    made.step, made.last_index, made.ended = 4, 1, (3, 3)
    for index, (step, order) in enumerate([(4, 1), (2, 2), (4, 0)]):
        slot = made.slots[index]
        slot.last_call = call = BucketCall(slot, step, 0, Recorder())
        call.order = order
        if index:
            call.finished()
    group = FakeGroup(members=(0, 4, 2))
    made.slots[0].last_call.issued(FakeOperation(64, kind="all_gather", info=group))  # type: ignore[union-attr]
    (status,) = look([made], 5)
    assert (status.position, status.name) == ((4, 1), "a all-gather (forward)")
    assert (status.ended_step, status.ended_calls) == (3, 3)
    assert status.left_out == ("b all-gather (forward)",)
    (waits,) = status.in_flight
    assert (waits.position, waits.name, waits.members) == ((4, 1), status.name, (0, 4, 2))
