"""Units of a sharded model on a device: events inside of the call, and what is not known."""

from __future__ import annotations

import itertools
from typing import Any

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
from hooktrace.staging.units import ShardedModel, UnitInfo
from tests.staging.test_units import Reduces

from .fake_device import FakeDevice


def unit_of(tracer: Tracer) -> tuple[Stamps, dist.ProcessGroup]:
    """Return what stamps the calls of a unit of a new model, and the group that it calls."""
    steps = ShardedModel(ModelState("net", "fully_shard", {}, 0), tracer)
    tracer.models.register_layout(steps)
    assert dist.group.WORLD is not None
    return Stamps(steps, UnitInfo("block", (("weight", (8, 8)),)), tracer), dist.group.WORLD


def test_units_are_timed_by_their_device_and_nothing_is_claimed_of_waits() -> None:
    """No synchronisation, each event read; what the computing stream waited for is unknown."""
    with (
        FakeDevice() as device,
        Tracer(error_every=0, align_clocks=False, channel=False, run_id="fake") as tracer,
    ):
        stamps, group = unit_of(tracer)
        gather = TracedAllGather(DefaultAllGather(), stamps)
        scatter = TracedReduceScatter(DefaultReduceScatter(), stamps)
        part, whole = torch.empty(16, device="cuda"), torch.empty(64, device="cuda")
        for _ in range(3):
            gather(whole, part, group)
            Reduces.apply(
                torch.zeros(1, requires_grad=True),
                lambda: scatter(part, whole, group, dist.ReduceOp.AVG),
            ).sum().backward()
        tracer.flush()
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
    with (
        FakeDevice(),
        Tracer(error_every=0, align_clocks=False, channel=False, run_id="fake") as tracer,
    ):
        pool = EventPool(lambda device: Numbered())
        tracer.event_pool = pool
        stamps, group = unit_of(tracer)
        reduction = ReplicaReduction(None, stamps, group, lambda _: False)
        scatter = TracedReduceScatter(DefaultReduceScatter(), stamps, reduction.begins)
        part, whole = torch.empty(16, device="cuda"), torch.empty(64, device="cuda")

        def reduce() -> None:
            scatter(part, whole, group, dist.ReduceOp.AVG)
            scatter(part, whole, group, dist.ReduceOp.AVG)
            reduction(part)

        for _ in range(3):
            Reduces.apply(torch.zeros(1, requires_grad=True), reduce).sum().backward()
            tracer.flush()
        assert tracer.losses() == {}
        first, again, reduced = (bucket.device for bucket in tracer.buckets()[-3:])
        assert first is not None
        assert again is not None
        assert reduced is not None
        # Events of a step: 0 to 3 of the first scatter, 4 at its end, 5 to 8 of the second, 9 at
        # its end; 10, which 9 takes the place of, to 13 of the all-reduce.
        assert (first.ready_ns, first.done_ns) == (0, 3_000_000)
        assert (again.ready_ns, again.done_ns) == (5_000_000, 8_000_000)
        assert (reduced.ready_ns, reduced.done_ns) == (9_000_000, 13_000_000)
        assert pool.created == 12  # what was not needed is used again: two of those fourteen


def test_the_event_of_a_reduction_that_is_not_recorded_goes_back() -> None:
    """Recording is switched off between the scatter's end and the all-reduce."""
    with (
        FakeDevice() as device,
        Tracer(error_every=0, align_clocks=False, channel=False, run_id="fake") as tracer,
    ):
        stamps, group = unit_of(tracer)
        reduction = ReplicaReduction(None, stamps, group, lambda _: False)
        reduced = torch.empty(16, device="cuda")
        for _ in range(3):
            reduction.begins(reduced.device)
            tracer.recording = False
            reduction(reduced)
            tracer.recording = True
    assert device.events == 1
