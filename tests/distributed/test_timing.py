"""Times of a step where a backward pass is more than one model's, on real gloo ranks."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from hooktrace import Tracer, hooks, trace
from tests.distributed.harness import on
from tests.distributed.models import make_ddp, make_model
from tests.fakes import calls_in_flight


class _GoesOn(torch.autograd.Function):
    """Backward work until nothing is under way, and as long again as the step took until then.

    So it outlasts what the hook's own calls took, which is not backward's.
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, tracer: Tracer) -> torch.Tensor:
        ctx.tracer, ctx.begun = tracer, time.monotonic()
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        while calls_in_flight(ctx.tracer):
            assert time.monotonic() < ctx.begun + 60, "buckets are under way for ever"
            time.sleep(0.001)
        time.sleep(time.monotonic() - ctx.begun)
        return gradients[0], None


def _traced(tracer: Tracer, name: str) -> DistributedDataParallel:
    ddp = make_ddp()
    ddp.register_comm_hook(None, trace(hooks.fp16_compress_hook, tracer=tracer, model=name))
    return ddp


@pytest.mark.slow
@on(2)
def test_what_later_backward_hides_is_not_exposed(rank: int) -> None:
    """A trunk's work and a second model's, which go on until all is there; then nothing is left."""
    with Tracer(error_every=0) as tracer:
        behind_trunk, first, second = (_traced(tracer, n) for n in ("trunk", "first", "second"))
        for _ in range(4):
            x = torch.randn(4, 32, requires_grad=True)
            behind_trunk(_GoesOn.apply(x, tracer)).square().sum().backward()
            y = second(torch.randn(4, 32))
            first(_GoesOn.apply(y, tracer)).square().sum().backward()
    steps = {name: tracer.steps(name) for name in ("trunk", "first", "second")}
    assert {name: len(found) for name, found in steps.items()} == dict.fromkeys(steps, 4)
    for step in (*steps["trunk"], *steps["first"]):
        assert step.done_ns > step.last_ready_ns
        assert step.exposed_ns == 0
    for step in steps["second"]:
        assert step.exposed_ns is not None
        assert step.exposed_ns <= step.done_ns - step.last_ready_ns
    assert any(step.exposed_ns for step in steps["second"])


class _Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = make_model()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=True)
        return x


@on(2)
def test_reentrant_checkpoints_have_their_steps(rank: int) -> None:
    """Hooks run in passes inside the pass: each step is there when backward returns, and timed."""
    with Tracer(error_every=0) as tracer:
        ddp = DistributedDataParallel(_Checkpointed(), bucket_cap_mb=0.01)
        ddp.register_comm_hook(None, trace(hooks.fp16_compress_hook, tracer=tracer))
        seen = []
        for _ in range(4):
            ddp(torch.randn(4, 32, requires_grad=True)).square().sum().backward()
            seen.append(len(tracer.steps()))
    assert seen == [1, 2, 3, 4]
    for step in tracer.steps():
        assert step.exposed_ns is not None
        assert step.exposed_ns <= step.done_ns - step.last_ready_ns
