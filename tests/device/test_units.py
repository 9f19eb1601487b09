"""Units of a sharded model on a device: events inside of the call, and what is not known."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp._fully_shard._fsdp_collectives import (
    DefaultAllGather,
    DefaultReduceScatter,
)

from hooktrace import Tracer
from hooktrace.capture.buckets import ModelState
from hooktrace.capture.units import ShardedModel, UnitInfo
from hooktrace.fsdp.comms import Stamps, TracedAllGather, TracedReduceScatter

from .fake_device import FakeDevice


class Reduces(torch.autograd.Function):
    """Calls something in the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, then: Any) -> torch.Tensor:
        """Keep it."""
        ctx.then = then
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        """Call it."""
        ctx.then()
        return gradients[0], None


def test_units_are_timed_by_their_device_and_nothing_is_claimed_of_waits() -> None:
    """No synchronisation, each event read; what the computing stream waited for is unknown."""
    with (
        FakeDevice() as device,
        Tracer(error_every=0, align_clocks=False, channel=False, run_id="fake") as tracer,
    ):
        steps = ShardedModel(ModelState("net", "fully_shard", {}, 0), tracer)
        tracer.models.register_layout(steps)
        stamps = Stamps(steps, UnitInfo("block", (("weight", (8, 8)),)), tracer)
        gather = TracedAllGather(DefaultAllGather(), stamps)
        scatter = TracedReduceScatter(DefaultReduceScatter(), stamps)
        part, whole = torch.empty(16, device="cuda"), torch.empty(64, device="cuda")
        group = dist.group.WORLD
        assert group is not None
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
