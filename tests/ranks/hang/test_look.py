"""What a rank knows of its models, from calls as they are stamped."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from hooktrace.ranks.hang.collectives import Collectives, PendingCollective
from hooktrace.ranks.hang.evidence import NOWHERE, ThreadStack
from hooktrace.ranks.hang.look import look, oldest_call, training_thread
from hooktrace.records import Unit
from hooktrace.staging.calls import BucketCall
from hooktrace.staging.slots import BucketSlot, ModelState
from tests.fakes import FakeGroup, FakeOperation
from tests.ranks.hang.answers import at_barrier
from tests.ranks.test_hang import Rank

GATHER = FakeOperation(64, kind="all_gather")

STAGED: list[tuple[Callable[[Any], object], list[str]]] = [
    (lambda call: setattr(call, "hook_called", False), ["meeting"]),
    (lambda call: setattr(call, "hook_called", True), ["compress"]),
    (lambda call: call.issued(GATHER), ["wire"]),
    (lambda call: call.arrived(), ["decompress"]),
    (lambda call: call.finished(), []),
    (lambda call: setattr(call, "held", True), ["check"]),
]
PLAIN: list[tuple[Callable[[Any], object], list[str]]] = [
    (lambda call: setattr(call, "staged", False), ["hook"]),
    (lambda call: setattr(call, "launched", 3), ["future_wait"]),
    (lambda call: call.finished(), []),
]


@pytest.mark.parametrize("stages", [STAGED, PLAIN], ids=["staged", "plain"])
def test_stages(stages: list[tuple[Callable[[Any], object], list[str]]]) -> None:
    """From the hook's call to its result; of a plain hook only whether it has returned."""
    rank = Rank()
    call = rank.begin(0)
    call.slot.blank = replace(call.slot.blank, members=(0, 4, 2))
    for happens, seen in stages:
        happens(call)
        (status,) = look([rank.model], 5)
        assert [one.stage for one in status.in_flight] == seen
        if seen == ["wire"]:
            one = status.in_flight[0]
            found = (one.collective, one.group_size, one.age_ns, one.rounds, one.members)
            assert found == ("all_gather", 2, 5 - call.ready, 0, (0, 4, 2))


def test_a_call_of_several_rounds_waits_for_the_one_that_has_begun() -> None:
    rank = Rank()
    rank.begin(0).stamp("started")
    rank.begin(1)
    (status,) = look([rank.model], 5)
    assert status.in_flight[1].stage == "serialization_wait"


def test_an_operation_of_the_user_s_that_cannot_say() -> None:
    rank, operation = Rank(), FakeOperation(64)
    operation.describe = lambda: 1 / 0  # type: ignore[method-assign]
    rank.begin(0).issued(operation)
    (status,) = look([rank.model], 5)
    assert (status.in_flight[0].stage, status.in_flight[0].collective) == ("wire", "")


def test_position() -> None:
    """The last call's; of steps that were not recorded, what was counted."""
    rank = Rank()
    model = rank.model
    before = look([model], 5)[0]
    assert (before.position, before.last_call_age_ns) == ((-1, -1), None)
    assert oldest_call([model]) is None
    rank.begin(0)
    rank.begin(1)
    assert look([model], 5)[0].position == (0, 1)
    model.enter(0)  # its call is still looked at by hooktrace
    assert look([model], 5)[0].position == (0, 1)
    for index in (1, 0, 1):
        model.enter(index)
    assert look([model], 5)[0].position == (2, 1)


def test_of_two_models_of_one_name_the_one_called_last_is_told() -> None:
    rank = Rank()
    model, call = rank.model, rank.begin(0)
    assert oldest_call([model]) is call
    (status,) = look([ModelState("model0", "old", 0), model], 5)
    assert [(one.bucket, one.hook) for one in status.in_flight] == [(0, "fp16")]


def test_the_thread_that_trains() -> None:
    """That of the newest model's hook, where it is one of Python's; else the main thread."""
    main = threading.main_thread().ident or 0
    of_main = ThreadStack(name="m", ident=main, frames=(), where="a")
    worker = ThreadStack(name="w", ident=main + 1, frames=(), where="b")
    engine = ThreadStack(name="e", ident=main + 2, frames=(), where="c", foreign=True)

    def trains(*called: int) -> ThreadStack:
        models: list[Any] = [
            SimpleNamespace(slots={0: SimpleNamespace(thread=main + one)}) for one in called
        ]
        return training_thread([engine, worker, of_main], models)

    assert trains(0, 1) is worker
    assert trains(2) is trains(3) is of_main
    assert training_thread([], []) is NOWHERE


def test_a_call_waits_until_its_device_has_passed_it() -> None:
    """Though it has ended for the host; unless the drain has read its events, which are reused."""
    rank = Rank()
    passed = [False]
    call: Any = rank.begin(0)
    call.events = [SimpleNamespace(query=lambda: passed[0])] * 2
    call.issued(FakeOperation(64))
    call.arrived()
    call.finished()
    (status,) = look([rank.model], 5)
    assert [one.stage for one in status.in_flight] == ["device"]
    assert oldest_call([rank.model]) is call
    passed[0] = True
    assert oldest_call([rank.model]) is None
    passed[0], call.device_over = False, True
    assert oldest_call([rank.model]) is None


def test_a_sharded_model_s_place_is_counted_in_its_step() -> None:
    """Its buckets are numbered in the order in which they were met first, of any step."""
    made, rank = ModelState("net", "fully_shard", 0), Rank()
    calls: list[BucketCall] = []
    for index, (name, step, order) in enumerate([("a", 4, 1), ("b", 2, 2), ("c", 4, 0)]):
        unit = Unit(name=name, collective="all_gather", phase="forward")
        of = (0, 4, 2)
        slot = BucketSlot(made, torch.zeros(1), index, (), unit=unit, members=of)
        made.slots[index] = slot
        slot.last_call = call = BucketCall(slot, step, 0, rank.clock)
        call.order = order
        calls.append(call)
    made.step, made.last_index, made.ended = 4, 1, (3, 3)
    calls[1].finished()
    calls[2].finished()
    calls[0].issued(FakeOperation(64, kind="all_gather", info=FakeGroup()))
    (status,) = look([made], 5)
    assert (status.position, status.name) == ((4, 1), "a all-gather (forward)")
    assert (status.ended_step, status.ended_calls) == (3, 3)
    (waits,) = status.in_flight
    assert (waits.position, waits.name, waits.members) == ((4, 1), status.name, (0, 4, 2))


def test_a_barrier_is_stood_in_whatever_other_threads_do() -> None:
    """A heartbeat's group is younger, so that its collectives have lower numbers."""
    barrier = PendingCollective("0", "default_pg", 500, "barrier", 1)
    beats = (PendingCollective("9", "heartbeat", number, "broadcast", 1) for number in (12, 13))
    before, now = (
        replace(at_barrier(0), collectives=Collectives((barrier, beat), {})) for beat in beats
    )
    assert now.stands_in(before) == ("eval.py:3 run", barrier)
    assert now.stands_in(replace(before, main=NOWHERE)) is None
    assert now.stands_in(replace(before, collectives=None)) is None
