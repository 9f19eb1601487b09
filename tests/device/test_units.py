"""Units of a sharded model on a device: events inside of the call, and what is not known."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.fsdp._fully_shard._fsdp_collectives import (
    DefaultAllGather,
    DefaultReduceScatter,
)

from hooktrace import Tracer
from hooktrace.fsdp.comms import TracedAllGather, TracedReduceScatter
from hooktrace.fsdp.replicas import ReplicaReduction
from hooktrace.fsdp.stamps import Stamps
from hooktrace.staging.devices import EventPool
from hooktrace.staging.slots import ModelState
from hooktrace.staging.units import ShardedModel, UnitInfo, UnitWaits
from tests.staging.test_units import Reduces

from .fake_device import FakeDevice
from .simulated_streams import SimulatedStreams

SHARED = {"error_every": 0, "align_clocks": False, "channel": False, "run_id": "fake"}


class Unit:
    """A unit of a new model, whose calls are stamped."""

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer
        self.steps = ShardedModel(ModelState("net", "fully_shard", {}, 0), tracer)
        tracer.models.register_layout(self.steps)
        assert dist.group.WORLD is not None
        self.group = dist.group.WORLD
        self.stamps = Stamps(self.steps, UnitInfo("block", (("weight", (8, 8)),)), tracer)
        self.part, self.whole = torch.empty(16, device="cuda"), torch.empty(64, device="cuda")

    def backward(self, reduce: Callable[[], object]) -> None:
        """Make a backward pass that reduces in this way."""
        Reduces.apply(torch.zeros(1, requires_grad=True), reduce).sum().backward()
        self.tracer.flush()


def test_units_are_timed_by_their_device_and_nothing_is_claimed_of_waits() -> None:
    """No synchronisation, each event read; what the computing stream waited for is unknown."""
    with FakeDevice() as device, Tracer(**SHARED) as tracer:  # type: ignore[arg-type]
        unit = Unit(tracer)
        gather = TracedAllGather(DefaultAllGather(), unit.stamps)
        scatter = TracedReduceScatter(DefaultReduceScatter(), unit.stamps)
        for _ in range(3):
            gather(unit.whole, unit.part, unit.group)
            unit.backward(lambda: scatter(unit.part, unit.whole, unit.group, dist.ReduceOp.AVG))
        assert tracer.losses() == {}
        found = tracer.buckets()
        assert [str(b.unit) for b in found] == [
            "block all-gather (forward)",
            "block reduce-scatter (backward)",
        ] * 3
        for bucket in found:
            assert bucket.device is not None
            assert [s.name for s in bucket.timed_stages] == ["wire"]
            assert bucket.exposed_ns is None
        assert [(s.clock, s.exposed_ns, s.complete) for s in tracer.steps()] == [
            ("device", None, True)
        ] * 3
    assert device.synchronising == []
    assert device.strict_queries == []


class Numbered:
    """An event that is one ms later than the one that was recorded before it."""

    count = itertools.count()

    def record(self, stream: Any) -> None:
        self.at = next(self.count)

    def query(self) -> bool:
        return True

    def elapsed_time(self, end_event: Numbered) -> float:
        return float(end_event.at - self.at)


def test_replicas_are_reduced_from_the_scatter_s_end() -> None:
    """Its event is of then; one that no all-reduce followed goes back to the pool."""
    with FakeDevice(), Tracer(**SHARED) as tracer:  # type: ignore[arg-type]
        pool = EventPool(lambda device: Numbered())
        tracer.event_pool = pool
        unit = Unit(tracer)
        reduction = ReplicaReduction(None, unit.stamps, unit.group, lambda _: False)
        scatter = TracedReduceScatter(DefaultReduceScatter(), unit.stamps, reduction.begins)

        def reduce() -> None:
            for _ in range(2):
                scatter(unit.part, unit.whole, unit.group, dist.ReduceOp.AVG)
            reduction(unit.part)

        for _ in range(3):
            unit.backward(reduce)
        assert tracer.losses() == {}
        spans = [bucket.device for bucket in tracer.buckets()[-3:]]
        # Events of a step: 0 to 3 of the first scatter, 4 at its end, 5 to 8 of the second, 9 at
        # its end; 10, which 9 takes the place of, to 13 of the all-reduce.
        assert [span and (span.ready_ns, span.done_ns) for span in spans] == [
            *((0, 3_000_000), (5_000_000, 8_000_000), (9_000_000, 13_000_000))
        ]
        assert pool.created == 12  # what was not needed is used again: two of those fourteen


def test_a_captured_stream_has_no_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would never pass: what is exposed is not known, and counted."""
    pool, pushed = EventPool(), list[Any]()
    with SimulatedStreams() as device, Tracer(channel=False, run_id="fake") as tracer:
        waits = UnitWaits(pool, pushed.append)
        model = ShardedModel(ModelState("net", "fully_shard", {}, 0), tracer, waits=waits)
        unit = UnitInfo("block", (("weight", (8, 8)),))
        with device.stream(device.Stream()):
            assert model.takes(unit, "all_gather")
            call = model.begin(unit, torch.zeros(4), 0)
            assert call is not None
            call.over()
        created = pool.created
        with monkeypatch.context() as patch:
            patch.setattr(torch.cpu, "is_current_stream_capturing", lambda: True, raising=False)
            waits.before(call)
        waits.before(call)
    assert (call.before_wait, pool.created) == (None, created)
    (failure,) = pushed
    assert "captured into a graph" in failure.why
