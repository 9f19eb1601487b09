"""Units of a sharded model on a device: events inside of the call, and what is not known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.fsdp._fully_shard._fsdp_collectives import (
    DefaultAllGather,
    DefaultReduceScatter,
)

from hooktrace import Tracer
from hooktrace.fsdp.comms import Hooks, TracedUnit
from hooktrace.fsdp.torch_groups import ParameterGroup
from hooktrace.staging.devices import EventPool
from hooktrace.staging.slots import ModelState
from hooktrace.staging.units import ShardedModel, UnitInfo, UnitWaits
from tests.staging.test_units import Reduces

from .fake_device import FakeDevice
from .simulated_streams import SimulatedStreams

SHARED = {"error_every": 0, "align_clocks": False, "channel": False, "run_id": "fake"}


def test_units_are_timed_by_their_device_and_nothing_is_claimed_of_waits() -> None:
    """No synchronisation, each event read; what the computing stream waited for is unknown."""
    with FakeDevice() as device, Tracer(**SHARED) as tracer:  # type: ignore[arg-type]
        steps = ShardedModel(ModelState("net", "fully_shard", 0), tracer)
        tracer.models.register_layout(steps)
        group: Any = dist.group.WORLD
        of_torch = SimpleNamespace(
            _all_gather_comm=DefaultAllGather(), _reduce_scatter_comm=DefaultReduceScatter(),
            _all_reduce_hook=None, mesh_info=None,
        )  # fmt: skip
        info = UnitInfo("block", (("weight", (8, 8)),))
        gather, scatter, _ = TracedUnit(
            ParameterGroup(of_torch, info), steps, tracer, Hooks(None, None),
            waits=None, probe=None, end=steps.leave,
        ).ours  # fmt: skip
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


def test_a_captured_stream_has_no_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would never pass: what is exposed is not known, and counted."""
    pool, pushed = EventPool(), list[Any]()
    with SimulatedStreams() as device, Tracer(channel=False, run_id="fake") as tracer:
        waits = UnitWaits(pool, pushed.append)
        model = ShardedModel(ModelState("net", "fully_shard", 0), tracer, waits=waits)
        unit = UnitInfo("block", (("weight", (8, 8)),))
        with device.stream(device.Stream()):
            call = model.begin(model.places_of(unit, "all_gather"), torch.zeros(4))
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
