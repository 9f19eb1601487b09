"""Calls of units, and the events before they are waited for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from hooktrace import Tracer
from hooktrace.staging.devices import DeviceCall, EventPool
from hooktrace.staging.ring import Loss
from hooktrace.staging.slots import ModelState
from hooktrace.staging.unit_waits import UnitWaits
from hooktrace.staging.units import ShardedModel, UnitInfo

from .simulated_streams import SimulatedStreams


class Some:
    """Models whose calls are watched; ``pushed``: what failed."""

    def __init__(self, tracer: Tracer) -> None:
        self.pushed: list[object] = []
        self.pool = EventPool()
        self.waits = UnitWaits(self.pool, self.pushed.append)
        self.unit = UnitInfo("block", (("weight", (8, 8)),))
        self.models = [
            ShardedModel(ModelState(name, "fully_shard", {}, 0), tracer, waits=self.waits)
            for name in ("net", "other")
        ]

    def call(self, model: int = 0) -> DeviceCall:
        sharded = self.models[model]
        assert sharded.takes(self.unit, "all_gather")
        call = sharded.begin(self.unit, torch.zeros(4), 0)
        assert isinstance(call, DeviceCall)
        call.over()
        return call


@pytest.fixture
def device() -> Iterator[SimulatedStreams]:
    """Streams."""
    with SimulatedStreams() as streams:
        yield streams


@pytest.fixture
def some(device: SimulatedStreams) -> Iterator[Some]:
    """Models on them."""
    with Tracer(channel=False, run_id="fake") as tracer:
        yield Some(tracer)


def test_a_call_is_waited_for_once(device: SimulatedStreams, some: Some) -> None:
    """With all that its stream ran before it; who waits again records nothing."""
    with device.stream(device.Stream()):
        first, second, third = some.call(), some.call(), some.call()
    created = some.pool.created
    some.waits.before(second)
    some.waits.before(first)
    some.waits.before(second)
    assert some.pool.created == created + 1
    assert first.before_wait == second.before_wait != ()
    assert third.before_wait is None
    some.waits.before(third, streams=[third.stream])
    assert third.before_wait not in (None, second.before_wait)


def test_the_computing_stream_does_not_wait_for_itself(
    device: SimulatedStreams, some: Some
) -> None:
    """It has stood still in the call; an event says nothing more."""
    own = some.call()
    created = some.pool.created
    some.waits.before(own)
    assert own.before_wait == ()
    assert some.pool.created == created


def test_models_have_events_of_their_own(device: SimulatedStreams, some: Some) -> None:
    """Whose steps end at other times; a step that ends is forgotten."""
    with device.stream(device.Stream()):
        calls = [some.call(model) for model in (0, 1, 0, 1)]
    some.waits.before(calls[1])
    ours, theirs = (call.before_wait for call in calls[:2])
    assert ours is not None
    assert theirs is not None
    assert ours != theirs
    assert some.waits.last(some.unit, "all_gather") is calls[3]
    some.models[1].leave()
    assert some.waits.last(some.unit, "all_gather") is None
    some.waits.before(*calls[2:])
    assert calls[3].before_wait is None
    assert calls[2].before_wait is not None


def test_a_captured_stream_has_no_event(
    device: SimulatedStreams, some: Some, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would never pass: what is exposed is not known, and counted."""
    with device.stream(device.Stream()):
        call = some.call()
    created = some.pool.created
    with monkeypatch.context() as patch:
        patch.setattr(torch.cpu, "is_current_stream_capturing", lambda: True, raising=False)
        some.waits.before(call)
    some.waits.before(call)
    assert (call.before_wait, some.pool.created) == (None, created)
    (failure,) = some.pushed
    assert isinstance(failure, Loss)
    assert "captured into a graph" in failure.why


def test_what_is_lost_is_said(device: SimulatedStreams, some: Some) -> None:
    """And no call of then is claimed to have been waited for later."""
    with device.stream(device.Stream()):
        call = some.call()
    some.waits.lose(AttributeError("comm_ctx"))
    some.waits.before(call, streams=[call.stream])
    assert call.before_wait is None
    assert some.pushed == [Loss("stamp_failed", "AttributeError: comm_ctx")]
