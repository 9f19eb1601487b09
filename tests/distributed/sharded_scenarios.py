"""What ranks do in ``test_fsdp.py``: sharded models, traced and not, in each way to set FSDP up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from hooktrace import Tracer, fsdp
from hooktrace.fsdp import hooks
from tests.distributed.models import heard

WIDTH = 32
STEPS = 4


class Block(nn.Module):
    """A unit."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return as many numbers."""
        return self.inner(x).relu()


class Net(nn.Module):
    """Three units, and a head that is the root's own."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(WIDTH, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return five numbers a row."""
        for block in self.blocks:
            x = block(x)
        return self.head(x)


Step = Callable[[nn.Module, Callable[[], torch.Tensor]], None]


def one_pass(model: nn.Module, batch: Callable[[], torch.Tensor]) -> None:
    """Forward and backward."""
    model(batch()).float().square().mean().backward()


def micro_steps(model: Any, batch: Callable[[], torch.Tensor]) -> None:
    """Two passes that keep their gradients, and one that reduces them."""
    model.set_requires_gradient_sync(False)
    one_pass(model, batch)
    one_pass(model, batch)
    model.set_requires_gradient_sync(True)
    one_pass(model, batch)


def two_backwards(model: Any, batch: Callable[[], torch.Tensor]) -> None:
    """Two passes that reduce, of which the first is not the last."""
    model.set_is_last_backward(False)
    one_pass(model, batch)
    model.set_is_last_backward(True)
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


def asynchronous(model: Any) -> None:
    """Have each gather issued asynchronously."""
    model._set_unshard_async_op(True)


def divided(model: Any) -> None:
    """Divide by another number than that of the ranks, which gloo takes as a sum."""
    model.set_force_sum_reduction_for_comms(True)
    model.set_gradient_divide_factor(3.0)


HALF = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
HALF_REDUCED = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
FLOAT16 = MixedPrecisionPolicy(param_dtype=torch.float16, reduce_dtype=torch.float16)

SETUPS = {
    "plain": Setup(),
    "mixed precision": Setup({"mp_policy": HALF}),
    "bfloat16 reduced": Setup({"mp_policy": HALF_REDUCED}),
    "float16 reduced": Setup({"mp_policy": FLOAT16}),
    "not resharded": Setup({"reshard_after_forward": False}),
    "always resharded": Setup({"reshard_after_forward": True}),
    "micro steps": Setup(step=micro_steps),
    "not last": Setup(step=two_backwards),
    "prefetching": Setup(prepare=prefetching),
    "asynchronous": Setup(prepare=asynchronous),
    "divided": Setup(prepare=divided),
    "compiled": Setup(prepare=lambda model: model.compile(backend="aot_eager")),
}
FOUR = {
    "hybrid": Setup(mesh="two by two"),
    "hybrid, micro steps": Setup(mesh="two by two", step=micro_steps),
    "hybrid, kept": Setup(mesh="two by two", step=no_all_reduce),
    "resharded to two": Setup({"reshard_after_forward": 2}),
}


def mesh_of(name: str) -> DeviceMesh:
    """Return one of this job's."""
    ranks = dist.get_world_size()
    if name == "two by two":
        return init_device_mesh("cpu", (2, ranks // 2), mesh_dim_names=("replicas", "shards"))
    return init_device_mesh("cpu", (ranks,))


def sharded(setup: Setup) -> Any:
    """Return a model, the same on all ranks."""
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
    """Return this rank's parameters, flat."""
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
        "anomalies": [record.message for record in tracer.anomalies()],
        "steps": list(tracer.steps()),
        "buckets": list(tracer.buckets()),
        "layouts": list(tracer.layouts()),
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


def all_setups(rank: int) -> dict[str, dict[str, Any]]:
    """Return the facts of every setup that any number of ranks can have."""
    return agree(SETUPS, rank)


def hybrid_setups(rank: int) -> dict[str, dict[str, Any]]:
    """Return the facts of those that need four ranks."""
    return agree(FOUR, rank)


def lossy_hooks(rank: int) -> dict[str, dict[str, Any]]:
    """Return how far one step's gradients are from FSDP's own, by hook, and what was recorded."""
    made: dict[str, dict[str, Any]] = {
        "fp16": {"reduce_scatter": hooks.fp16_reduce_scatter()},
        "bf16": {"reduce_scatter": hooks.bf16_reduce_scatter()},
        "8 bit": {"reduce_scatter": hooks.EightBitReduceScatter()},
        "8 bit parameters": {"all_gather": hooks.EightBitAllGather()},
        "fp8 parameters": {"all_gather": hooks.Fp8AllGather()},
    }
    found = {}
    for setup_name in ("plain", "divided"):
        setup = SETUPS[setup_name]
        plain = _gradients(setup, rank, sharded(setup))
        for name, options in made.items():
            model = sharded(setup)
            with traced(model, **options) as tracer:
                lossy = _gradients(setup, rank, model)
                facts = facts_of(tracer)
            facts["error"] = float((lossy - plain).norm() / plain.norm())
            found[f"{name}, {setup_name}"] = facts
    return found


def _gradients(setup: Setup, rank: int, model: Any) -> torch.Tensor:
    numbers = torch.Generator().manual_seed(rank + 1)
    setup.step(model, lambda: torch.randn(8, WIDTH, generator=numbers))
    return torch.cat([p.grad.to_local().flatten() for p in model.parameters()])


def tiny_gradients(rank: int) -> float:
    """Return how far gradients of 1e-10 are from FSDP's own when they are sent as bytes."""

    def tiny(model: nn.Module, batch: Callable[[], torch.Tensor]) -> None:
        (1e-9 * model(batch()).square().mean()).backward()

    setup = Setup(step=tiny)
    plain = _gradients(setup, rank, sharded(setup))
    model = sharded(setup)
    with traced(model, reduce_scatter=hooks.EightBitReduceScatter()):
        lossy = _gradients(setup, rank, model)
    return float((lossy - plain).norm() / plain.norm())


def feedback(rank: int) -> dict[str, float]:
    """Return how far the mean of ten reductions of the same gradients is from the true one."""
    found = {}
    for kept in (False, True):
        hook = hooks.EightBitReduceScatter(error_feedback=kept)
        setup = SETUPS["plain"]
        plain, total = _gradients(setup, rank, sharded(setup)), torch.zeros(())
        model = sharded(setup)
        with traced(model, reduce_scatter=hook):
            for _ in range(10):
                total = total + _gradients(setup, rank, model)
                for parameter in model.parameters():
                    parameter.grad = None
        found["with" if kept else "without"] = float((total / 10 - plain).norm() / plain.norm())
    return found


def state_round_trip(rank: int) -> bool:
    """Return whether a traced model's state dict loads into another one, and both then agree."""
    setup = SETUPS["plain"]
    first, second = sharded(setup), sharded(setup)
    with traced(first):
        train(setup, rank, first)
        state = get_model_state_dict(first)
    with traced(second):
        set_model_state_dict(second, state)
        mine = torch.cat([p.to_local().flatten() for p in first.parameters()])
        loaded = torch.cat([p.to_local().flatten() for p in second.parameters()])
        train(setup, rank, second)
    return bool(torch.equal(mine, loaded))


def alone(rank: int) -> dict[str, Any]:
    """Return the facts of a model that is sharded over one rank."""
    group = dist.new_group([rank], use_local_synchronization=True)
    mesh = DeviceMesh.from_group(group, "cpu")
    model = Net()
    fully_shard(model, mesh=mesh)
    with traced(model) as tracer:
        train(Setup(), rank, model)
        return facts_of(tracer)
