"""A small model and the ways to shard it by FSDP2, trained with and without hooktrace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from hooktrace import Tracer, fsdp
from tests.distributed.models import anomalies, heard

WIDTH = 32
STEPS = 4


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x).relu()


class Net(nn.Module):
    """Three units, and a head that is the root's own."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(WIDTH, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


Step = Callable[[nn.Module, Callable[[], torch.Tensor]], None]


def one_pass(model: nn.Module, batch: Callable[[], torch.Tensor]) -> None:
    model(batch()).float().square().mean().backward()


def micro_steps(model: Any, batch: Callable[[], torch.Tensor]) -> None:
    """Two passes that keep their gradients, and one that reduces them."""
    model.set_requires_gradient_sync(False)
    one_pass(model, batch)
    one_pass(model, batch)
    model.set_requires_gradient_sync(True)
    one_pass(model, batch)


def no_all_reduce(model: Any, batch: Callable[[], torch.Tensor]) -> None:
    """Of replicas: a pass that keeps what was scattered, and one that reduces it over them."""
    model.set_requires_all_reduce(False)
    one_pass(model, batch)
    model.set_requires_all_reduce(True)
    one_pass(model, batch)


@dataclass(frozen=True)
class Setup:
    """One way to shard and to train.

    ``options``: of ``fully_shard``.  ``prepare``: called with the sharded model.  ``mesh``: which.
    ``build``: in place of these three, makes the sharded model.
    """

    options: dict[str, Any] = field(default_factory=dict)
    step: Step = one_pass
    prepare: Callable[[Any], object] = lambda model: None
    mesh: str = "one"
    build: Callable[[], Any] | None = None


def prefetching(model: Any) -> None:
    """Gather each block's parameters before the one before it has computed."""
    for before, after in zip(model.blocks, model.blocks[1:], strict=False):
        before.set_modules_to_forward_prefetch([after])
        after.set_modules_to_backward_prefetch([before])


def divided(model: Any) -> None:
    """Divide by another number than that of the ranks, which gloo takes as a sum."""
    model.set_force_sum_reduction_for_comms(True)
    model.set_gradient_divide_factor(3.0)


HALF = {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)}
HALF_REDUCED = {"mp_policy": MixedPrecisionPolicy(torch.bfloat16, torch.bfloat16)}

SETUPS = {
    "plain": Setup(),
    "mixed precision": Setup(HALF),
    "bfloat16 reduced": Setup(HALF_REDUCED),
    "not resharded": Setup({"reshard_after_forward": False}),
    "micro steps": Setup(step=micro_steps),
    "prefetching": Setup(prepare=prefetching),
    "asynchronous": Setup(prepare=lambda model: model._set_unshard_async_op(True)),
    "divided": Setup(prepare=divided),
    "compiled": Setup(prepare=lambda model: model.compile(backend="aot_eager")),
}

FOUR = {
    "hybrid": Setup(mesh="two by two"),
    "hybrid, kept": Setup(mesh="two by two", step=no_all_reduce),
    "resharded to two": Setup({"reshard_after_forward": 2}),
}


def mesh_of(name: str) -> DeviceMesh:
    ranks = dist.get_world_size()
    if name == "two by two":
        return init_device_mesh("cpu", (2, ranks // 2), mesh_dim_names=("replicas", "shards"))
    return init_device_mesh("cpu", (ranks,))


def sharded(setup: Setup) -> Any:
    torch._dynamo.reset()
    torch.manual_seed(0)
    if setup.build is not None:
        return setup.build()
    model = Net()
    mesh = mesh_of(setup.mesh)
    for block in model.blocks:
        fully_shard(block, mesh=mesh, **setup.options)
    fully_shard(model, mesh=mesh, **setup.options)
    setup.prepare(model)
    return model


def local_of(model: nn.Module) -> torch.Tensor:
    found = [p.detach() for p in model.parameters()]
    return torch.cat([(p.to_local() if hasattr(p, "to_local") else p).flatten() for p in found])


def train(
    setup: Setup, rank: int, model: Any, steps: int = STEPS, step: Step | None = None
) -> list[torch.Tensor]:
    """Return this rank's parameters after each step, flat; ``step``: in place of the setup's."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    numbers = torch.Generator().manual_seed(rank + 1)
    found = []
    for _ in range(steps):
        (step or setup.step)(model, lambda: torch.randn(8, WIDTH, generator=numbers))
        optimizer.step()
        optimizer.zero_grad()
        found.append(local_of(model))
    return found


def equal(expected: list[torch.Tensor], got: list[torch.Tensor]) -> list[bool]:
    """Return whether parameters are the same to the last bit, after each step."""
    return [torch.equal(a, b) for a, b in zip(expected, got, strict=True)]


@contextmanager
def traced(model: Any, **options: Any) -> Iterator[Tracer]:
    """Trace a model for as long as it trains."""
    with Tracer(error_every=0, channel=False) as tracer:
        handle = fsdp.trace(model, tracer=tracer, name="net", **options)
        yield tracer
        handle.remove()


def facts_of(tracer: Tracer) -> dict[str, Any]:
    """Return what was recorded, as plain values."""
    assert tracer.flush()
    return {
        "losses": tracer.losses(),
        "anomalies": [record.message for record in anomalies(tracer)],
        "steps": list(tracer.steps()),
        "buckets": list(tracer.buckets()),
        "assignments": list(tracer.assignments()),
    }


def agree(setups: dict[str, Setup], rank: int) -> dict[str, dict[str, Any]]:
    """Train each setup untraced and traced; return whether parameters are equal, and records."""
    found = {}
    for name, setup in setups.items():
        expected = train(setup, rank, sharded(setup))
        model = sharded(setup)
        with heard() as said, traced(model) as tracer:
            got = train(setup, rank, model)
            facts = facts_of(tracer)
        found[name] = facts | {"equal": equal(expected, got), "said": said}
    return found
