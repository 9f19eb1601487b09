"""What ranks do in ``test_sharded_edges.py``: sharded models in unusual setups, traced and not."""

from __future__ import annotations

import gc
import os
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    checkpoint_wrapper,
)
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard, register_fsdp_forward_method
from torch.distributed.fsdp._fully_shard._fsdp_common import FSDPMeshInfo, ShardPlacementResult
from torch.utils.checkpoint import checkpoint

from hooktrace import Tracer, fsdp
from tests.distributed.models import heard
from tests.distributed.sharded_scenarios import (
    WIDTH,
    Net,
    Setup,
    agree,
    equal,
    facts_of,
    local_of,
    mesh_of,
    one_pass,
    sharded,
    traced,
    train,
)

Batch = Callable[[], torch.Tensor]
Facts = dict[str, Any]


class CustomGather:
    """A user's all-gather: torch's, by other means."""

    def allocate(self, size: Any, *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Return memory."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any, async_op: bool
    ) -> None:
        """Gather, and wait."""
        parts = list(output_tensor.chunk(group.size()))
        dist.all_gather(parts, input_tensor.clone(), group=group)


class CustomScatter(CustomGather):
    """A user's reduce-scatter, which is an all-reduce."""

    def __call__(  # type: ignore[override]
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any, op: Any
    ) -> None:
        """Reduce, and take a part."""
        dist.all_reduce(input_tensor, op=op, group=group)
        output_tensor.copy_(input_tensor.chunk(group.size())[group.rank()])


def blocks_sharded(net: Any, root: bool = True, **options: Any) -> Any:
    """Return a model whose blocks are sharded, and it too."""
    for block in net.blocks:
        fully_shard(block, **options)
    if root:
        fully_shard(net, **options)
    return net


def plain() -> Any:
    """Return the usual one."""
    return blocks_sharded(Net(), mesh=mesh_of("one"))


def several_groups() -> Any:
    """Shard the biases of each block over another mesh."""
    mesh = mesh_of("one")
    other = FSDPMeshInfo(
        DeviceMesh.from_group(dist.new_group(), "cpu", mesh=list(range(dist.get_world_size()))),
        shard_mesh_dim=0,
    )

    def place(parameter: nn.Parameter) -> Any:
        return ShardPlacementResult(None, other) if parameter.dim() == 1 else None

    return blocks_sharded(Net(), mesh=mesh, shard_placement_fn=place)


def listed() -> Any:
    """Make one unit of the last block and the head."""
    net, mesh = Net(), mesh_of("one")
    for block in net.blocks[:2]:
        fully_shard(block, mesh=mesh)
    fully_shard([net.blocks[2], net.head], mesh=mesh)
    return fully_shard(net, mesh=mesh)


class Tied(Net):
    """Two layers with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.second = nn.Linear(WIDTH, WIDTH)
        self.second.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Use both."""
        return super().forward(self.second(self.first(x).relu()))


class Twice(nn.Module):
    """Calls a model two times."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add what comes out."""
        return self.net(x) + self.net(-x)


def custom() -> Any:
    """Set the user's own collectives."""
    net = plain()
    net.blocks[0].set_custom_all_gather(CustomGather())
    net.blocks[0].set_custom_reduce_scatter(CustomScatter())
    net.blocks[1].set_all_reduce_hook(lambda reduced: reduced.mul_(0.5))
    return net


def allocating() -> Any:
    """Have the process group allocate."""
    net = plain()
    for block in net.blocks:
        block.set_allocate_memory_from_process_group_for_comm(True)
    return net


def wrapped(outside: bool, reentrant: bool, root: bool = True, **options: Any) -> Any:
    """Checkpoint activations: around what is sharded, or inside of it."""
    net, mesh = Net(), mesh_of("one")
    kind = CheckpointImpl.REENTRANT if reentrant else CheckpointImpl.NO_REENTRANT
    for i, block in enumerate(net.blocks):
        if outside:
            net.blocks[i] = checkpoint_wrapper(fully_shard(block, mesh=mesh, **options), kind)
        else:
            net.blocks[i] = fully_shard(checkpoint_wrapper(block, kind), mesh=mesh, **options)
    return fully_shard(net, mesh=mesh, **options) if root else net


def shard_of_one() -> Any:
    """Replicate over all ranks; nothing is sharded."""
    shape = (dist.get_world_size(), 1)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replicas", "shards"))
    return blocks_sharded(Net(), mesh=mesh)


def hybrid() -> Any:
    """Replicate shards, and set a hook for what is reduced."""
    net = blocks_sharded(Net(), mesh=mesh_of("two by two"))
    net.blocks[1].set_all_reduce_hook(lambda reduced: reduced.mul_(0.5))
    return net


def unshards(model: Any, batch: Batch) -> None:
    """Gather by hand, outside of a forward pass and ahead of one."""
    model.blocks[0].unshard()
    handle = model.blocks[1].unshard(async_op=True)
    handle.wait()
    model.blocks[2].unshard(async_op=True)
    one_pass(model, batch)


def with_gradients(model: Any, batch: Batch) -> None:
    """Have gradients of the input too, without which a re-entrant checkpoint gives none."""
    one_pass(model, lambda: batch().requires_grad_())


def checkpointed(model: Any, batch: Batch) -> None:
    """Compute all of the model again in the backward pass."""
    x = batch().requires_grad_()
    checkpoint(model, x, use_reentrant=True).square().mean().backward()


def evaluates(model: Any, batch: Batch) -> None:
    """Evaluate all of it and parts of it, in all ways, between passes."""
    one_pass(model, batch)
    with torch.inference_mode():
        model(batch())
    with torch.no_grad():
        model.blocks[0](batch())
    model.eval()
    with torch.no_grad():
        checkpoint(model, batch(), use_reentrant=True)
    model.train()


def generating() -> Any:
    """Return a model with another method that is a forward pass."""
    net = plain()
    net.generate = net.forward
    register_fsdp_forward_method(net, "generate")
    return net


def generates(model: Any, batch: Batch) -> None:
    """Evaluate by a method."""
    one_pass(model, batch)
    with torch.inference_mode():
        model.generate(batch())


def generates_plainly(model: Any, batch: Batch) -> None:
    """Evaluate by a method, without the mode that tells."""
    one_pass(model, batch)
    with torch.no_grad():
        model.generate(batch())


EDGES = {
    "several groups": Setup(build=several_groups),
    "listed": Setup(build=listed),
    "tied": Setup(build=lambda: blocks_sharded(Tied(), mesh=mesh_of("one"))),
    "custom": Setup(build=custom),
    "allocating": Setup(build=allocating),
    "unsharding": Setup(step=unshards),
    "offloaded": Setup(
        build=lambda: blocks_sharded(
            Net(), mesh=mesh_of("one"), offload_policy=CPUOffloadPolicy(pin_memory=False)
        )
    ),
    "checkpoint around": Setup(build=lambda: wrapped(True, False)),
    "checkpoint inside": Setup(build=lambda: wrapped(False, False)),
    "reentrant around": Setup(build=lambda: wrapped(True, True), step=with_gradients),
    "reentrant inside": Setup(build=lambda: wrapped(False, True), step=with_gradients),
    "reentrant around, kept": Setup(
        build=lambda: wrapped(True, True, reshard_after_forward=False), step=with_gradients
    ),
    "reentrant around, no root": Setup(
        build=lambda: wrapped(True, True, root=False), step=with_gradients
    ),
    "all of it reentrant": Setup(step=checkpointed),
    "no root": Setup(build=lambda: blocks_sharded(Net(), root=False, mesh=mesh_of("one"))),
    "evaluation": Setup(step=evaluates),
    "generation": Setup(build=generating, step=generates),
    "generation, plainly": Setup(build=generating, step=generates_plainly),
    "twice": Setup(build=lambda: fully_shard(Twice(plain()), mesh=mesh_of("one"))),
    "twice, by hand": Setup(build=lambda: Twice(plain())),
    "shard of one": Setup(build=shard_of_one),
}
FOUR = {"hybrid, hooked": Setup(build=hybrid)}
PLAIN = Setup()


def all_edges(rank: int) -> dict[str, Facts]:
    """Return the facts of those that any number of ranks can have."""
    return agree(EDGES, rank)


def all_hybrid(rank: int) -> dict[str, Facts]:
    """Return the facts of those that need four ranks."""
    return agree(FOUR, rank)


def _numbers(facts: Facts) -> list[tuple[int, bool, int]]:
    """Return each step's number, whether it is complete, and how many collectives it has."""
    return [(s.step, s.complete, s.bucket_count) for s in facts["steps"]]


def set_anew(rank: int) -> dict[str, Facts]:
    """Set collectives after trace, before and between steps, each in its own way."""
    ways: dict[str, Callable[[Any], object]] = {
        "gather": lambda block: block.set_custom_all_gather(CustomGather()),
        "scatter": lambda block: block.set_custom_reduce_scatter(CustomScatter()),
        "hook": lambda block: block.set_all_reduce_hook(lambda reduced: None),
        "memory": lambda block: block.set_allocate_memory_from_process_group_for_comm(True),
    }
    found = {}
    for name, change in ways.items():
        expected = _change_after(None, rank, change)
        with heard() as said, traced(model := sharded(PLAIN)) as tracer:
            got = _change_after(model, rank, change)
            facts = facts_of(tracer)
        found[name] = {
            "equal": equal(expected, got), "said": said, "steps": _numbers(facts),
        }  # fmt: skip
    return found


def _change_after(model: Any, rank: int, change: Callable[[Any], object]) -> list[torch.Tensor]:
    model = sharded(PLAIN) if model is None else model
    first = train(PLAIN, rank, model, 2)
    change(model.blocks[1])
    return first + train(PLAIN, rank, model, 2)


def traced_twice(rank: int) -> Facts:
    """Trace with two tracers, then only a part anew, then take the tracings away one by one."""
    found: Facts = {}
    expected = train(PLAIN, rank, sharded(PLAIN), 8)
    model = sharded(PLAIN)
    options: Facts = {"error_every": 0, "channel": False}
    with heard() as said, Tracer(**options) as one, Tracer(**options) as other:
        first = fsdp.trace(model, tracer=one, name="first")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        numbers = torch.Generator().manual_seed(rank + 1)

        def go() -> None:
            for _ in range(2):
                one_pass(model, lambda: torch.randn(8, WIDTH, generator=numbers))
                optimizer.step()
                optimizer.zero_grad()

        go()
        second = fsdp.trace(model, tracer=other, name="second")
        first.remove()
        go()
        part = fsdp.trace(model.blocks[0], tracer=one, name="part")
        go()
        part.remove()
        second.remove()
        go()
        found = {"one": _named(one), "other": _named(other)}
    return found | {"equal": torch.equal(expected[-1], local_of(model)), "said": said}


def _named(tracer: Tracer) -> list[tuple[str, int, bool, int]]:
    return [(s.model, s.step, s.complete, s.bucket_count) for s in facts_of(tracer)["steps"]]


class Fails(torch.autograd.Function):
    """Raises in the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        """Return the same."""
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        """Raise."""
        raise ValueError("in backward")


class Failing(Net):
    """Raises where it is told to."""

    where = ""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return five numbers a row, or not."""
        for i, block in enumerate(self.blocks):
            if i == 2 and self.where == "forward":
                raise ValueError("in forward")
            x = block(x)
            if i == 1 and self.where == "backward":
                x = Fails.apply(x)
        return self.head(x)


def fails(model: Any, batch: Batch) -> None:
    """Fail in each way, recover, and make a step."""
    for where in ("forward", "backward"):
        model.where = where
        with suppress(ValueError):
            one_pass(model, batch)
        model.where = ""
        model.reset_iter_state()
        model.zero_grad()
    one_pass(model, batch)


def failures(rank: int) -> Facts:
    """Train with passes that raise, and return what was recorded."""
    edge = Setup(build=lambda: blocks_sharded(Failing(), mesh=mesh_of("one")), step=fails)
    expected = train(edge, rank, sharded(edge), 2)
    model = sharded(edge)
    with traced(model) as tracer:
        got = train(edge, rank, model, 2)
        facts = facts_of(tracer)
    return {"equal": equal(expected, got), "steps": _numbers(facts), "losses": facts["losses"]}


class Switches:
    """Switches recording off and on between and inside steps; ``tracer``: whose, if any."""

    def __init__(self, tracer: Tracer | None) -> None:
        self._tracer = tracer
        self._step = 0

    def _record(self, on: bool) -> None:
        if self._tracer is not None:
            self._tracer.recording = on

    def __call__(self, model: Any, batch: Batch) -> None:
        """Step 1 is off; 2 from its backward pass on on; 3's first pass off; 4 from half on."""
        self._record(self._step not in (1, 2, 3))
        if self._step in (3, 4):
            model.set_requires_gradient_sync(False)
            one_pass(model, batch)
            model.set_requires_gradient_sync(True)
            self._record(self._step == 3)
        loss = model(batch()).square().mean()
        self._record(self._step not in (1, 4))
        loss.backward()
        self._step += 1


def switched(rank: int) -> Facts:
    """Switch recording off and on, on a sharded model and on one that is replicated only."""
    found: Facts = {}
    for name, build in (("sharded", plain), ("replicated", shard_of_one)):
        edge = Setup(build=build)
        expected = train(edge, rank, sharded(edge), 6, Switches(None))
        model = sharded(edge)
        with traced(model) as tracer:
            got = train(edge, rank, model, 6, Switches(tracer))
            facts = facts_of(tracer)
        gathers = [b for b in facts["buckets"] if b.unit.collective == "all_gather"]
        turns = [b.unit.turn for b in gathers if b.step == 3]
        found[name] = equal(expected, got), _numbers(facts), sorted(set(turns)), facts["losses"]
    return found


def left_early(rank: int) -> Facts:
    """Take the tracing away between forward and backward, and close a tracer there."""
    found: Facts = {}
    for name in ("removed", "closed"):
        expected = train(PLAIN, rank, sharded(PLAIN))
        model = sharded(PLAIN)
        with Tracer(error_every=0, channel=False) as tracer:
            handle = fsdp.trace(model, tracer=tracer)

            class Leaves:
                step = 0

                def __call__(self, model: Any, batch: Batch) -> None:
                    loss = model(batch()).square().mean()
                    if self.step == 2 and name == "removed":  # noqa: B023
                        handle.remove()  # noqa: B023
                        assert tracer.flush()
                    if self.step == 2 and name == "closed":  # noqa: B023
                        tracer.close()
                    loss.backward()
                    self.step += 1

            got = train(PLAIN, rank, model, step=Leaves())
            found[name] = equal(expected, got), _numbers({"steps": tracer.steps()})
        found[f"{name}, hooks"] = sum(
            len(m._forward_pre_hooks) + len(m._forward_hooks) for m in model.modules()
        )
    found["hooks before"] = sum(
        len(m._forward_pre_hooks) + len(m._forward_hooks) for m in sharded(PLAIN).modules()
    )
    return found


def endless(rank: int) -> Facts:
    """Run forward passes with gradients, and never a backward pass, then one."""
    from hooktrace.staging import units

    model, most = sharded(PLAIN), units.MOST_CALLS
    units.MOST_CALLS = 30
    try:
        with heard() as said, traced(model) as tracer:
            for _ in range(20):
                model(torch.randn(8, WIDTH))
            one_pass(model, lambda: torch.randn(8, WIDTH))
            one_pass(model, lambda: torch.randn(8, WIDTH))
            facts = facts_of(tracer)
    finally:
        units.MOST_CALLS = most
    layouts = [len(layout.buckets) for layout in facts["layouts"]]
    return {
        "losses": facts["losses"], "said": said, "steps": _numbers(facts), "layouts": layouts,
    }  # fmt: skip


def memory(rank: int) -> Facts:
    """Train for 200 steps; count objects, and what is left of the model when it is gone."""
    model = sharded(PLAIN)
    with Tracer(error_every=0, channel=False, keep_steps=8, keep_buckets=8) as tracer:
        handle = fsdp.trace(model, tracer=tracer)
        counts = []
        for _ in range(4):
            train(PLAIN, rank, model, 50)
            assert tracer.flush()
            gc.collect()
            counts.append(len(gc.get_objects()))
        alive = [weakref.ref(one) for one in (model, *model.parameters(), handle)]
        del model, handle
        gc.collect()
        left = sum(one() is not None for one in alive)
    return {"counts": counts, "left": left}


def forked(rank: int) -> Facts:
    """Fork between forward and backward; return the child's exit code and what is recorded here."""
    model = sharded(PLAIN)
    with traced(model) as tracer:
        loss = model(torch.randn(8, WIDTH)).square().mean()
        child = os.fork()
        if child == 0:
            os._exit(
                int(bool(tracer.steps() or tracer.losses() or tracer.models.count_in_flight()))
            )
        _, status = os.waitpid(child, 0)
        loss.backward()
        facts = facts_of(tracer)
    return {"code": os.waitstatus_to_exitcode(status), "steps": _numbers(facts)}


class FailingClock:
    """Raises every third time on the training thread while it is told to."""

    def __init__(self) -> None:
        self.fails = False
        self._calls = 0
        self._thread = threading.get_ident()

    def __call__(self) -> int:
        """Return the time."""
        if self.fails and threading.get_ident() == self._thread:
            self._calls += 1
            if self._calls % 3 == 0:
                raise OSError("no time")
        return time.perf_counter_ns()


def without_time(rank: int) -> Facts:
    """Train with a clock that fails, with synchronous collectives and asynchronous ones."""
    found: Facts = {"equal": []}
    for build in (plain, prefetched, shard_of_one):
        edge = Setup(build=build)
        expected = train(edge, rank, sharded(edge))
        model, clock = sharded(edge), FailingClock()
        with Tracer(error_every=0, channel=False, clock=clock) as tracer:
            handle = fsdp.trace(model, tracer=tracer)
            clock.fails = True
            got = train(edge, rank, model)
            clock.fails = False
            assert tracer.flush()
            handle.remove()
            found["equal"].append(equal(expected, got))
            found[build.__name__] = tracer.losses()
    return found


def prefetched() -> Any:
    """Gather asynchronously."""
    net = plain()
    net._set_unshard_async_op(True)
    return net
