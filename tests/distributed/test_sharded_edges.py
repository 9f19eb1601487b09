"""Sharded models in unusual setups on real ranks: training is the same, and no step is untrue."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any

import pytest
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
from tests.distributed.harness import Ranks, on
from tests.distributed.models import FailingClock, heard
from tests.distributed.sharded import (
    STEPS,
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
from tests.distributed.test_fsdp import check as check_sharded
from tests.staging.test_units import Reduces

pytestmark = pytest.mark.slow

Batch = Callable[[], torch.Tensor]

Facts = dict[str, Any]


class CustomGather:
    """A user's all-gather: torch's, by other means."""

    def allocate(self, size: Any, *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any, async_op: bool
    ) -> None:
        parts = list(output_tensor.chunk(group.size()))
        dist.all_gather(parts, input_tensor.clone(), group=group)


class CustomScatter(CustomGather):
    """A user's reduce-scatter, which is an all-reduce."""

    def __call__(  # type: ignore[override]
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any, op: Any
    ) -> None:
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
        return super().forward(self.second(self.first(x).relu()))


class Twice(nn.Module):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x) + self.net(-x)


def custom() -> Any:
    net = plain()
    net.blocks[0].set_custom_all_gather(CustomGather())
    net.blocks[0].set_custom_reduce_scatter(CustomScatter())
    net.blocks[1].set_all_reduce_hook(lambda reduced: reduced.mul_(0.5))
    return net


def allocating() -> Any:
    net = plain()
    for block in net.blocks:
        block.set_allocate_memory_from_process_group_for_comm(True)
    return net


def checkpointed_blocks(kind: CheckpointImpl, **options: Any) -> Any:
    """Checkpoint activations around what is sharded."""
    net, mesh = Net(), mesh_of("one")
    for i, block in enumerate(net.blocks):
        net.blocks[i] = checkpoint_wrapper(fully_shard(block, mesh=mesh, **options), kind)
    return fully_shard(net, mesh=mesh, **options)


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
    one_pass(model, batch)
    with torch.no_grad():  # and not the mode that tells
        model.generate(batch())


USUAL = (4, 3, 4, 0)
"""All-gathers in forward and in backward, reduce-scatters and all-reduces of a step, of four units;
the root is kept."""

REENTRANT, ONCE = CheckpointImpl.REENTRANT, CheckpointImpl.NO_REENTRANT
OFFLOADED = CPUOffloadPolicy(pin_memory=False)

EDGES: dict[str, tuple[Setup, tuple[int, int, int, int]]] = {
    "several groups": (Setup(build=several_groups), (8, 6, 8, 0)),
    "listed": (Setup(build=listed), (3, 3, 3, 0)),
    "tied": (Setup(build=lambda: blocks_sharded(Tied(), mesh=mesh_of("one"))), USUAL),
    "custom": (Setup(build=custom), (4, 3, 4, 1)),
    "allocating": (Setup(build=allocating), USUAL),
    "unsharding": (Setup(step=unshards), USUAL),
    "offloaded": (
        Setup(build=lambda: blocks_sharded(Net(), mesh=mesh_of("one"), offload_policy=OFFLOADED)),
        USUAL,
    ),
    "checkpoint": (Setup(build=lambda: checkpointed_blocks(ONCE)), USUAL),
    "reentrant": (Setup(build=lambda: checkpointed_blocks(REENTRANT), step=with_gradients), USUAL),
    "reentrant, kept": (
        Setup(
            build=lambda: checkpointed_blocks(REENTRANT, reshard_after_forward=False),
            step=with_gradients,
        ),
        (4, 0, 4, 0),
    ),
    "all of it reentrant": (Setup(step=checkpointed), USUAL),
    # Each unit is a root of its own, and kept.
    "no root": (
        Setup(build=lambda: blocks_sharded(Net(), root=False, mesh=mesh_of("one"))),
        (3, 0, 3, 0),
    ),
    # The root was kept by the evaluation in the step before.
    "evaluation": (Setup(step=evaluates), (3, 3, 4, 0)),
    "rebuild": (Setup(build=generating, step=generates), USUAL),
    "twice": (
        Setup(build=lambda: fully_shard(Twice(plain()), mesh=mesh_of("one"))),
        (8, 6, 4, 0),
    ),
    # The root is kept between its two calls, and the last block too.
    "twice, by hand": (Setup(build=lambda: Twice(plain())), (7, 5, 4, 0)),
    "shard of one": (Setup(build=shard_of_one), (0, 0, 0, 4)),
}
"""Ways to shard and to train, and the collectives of their step 2."""

PLAIN = Setup()


def all_edges(rank: int) -> dict[str, Facts]:
    return agree({name: setup for name, (setup, _) in EDGES.items()}, rank)


def check(facts: dict[str, Any], counts: tuple[int, int, int, int]) -> None:
    check_sharded(facts)
    assert [step.step for step in facts["steps"]] == list(range(STEPS))
    for step in facts["steps"]:
        own = [b for b in facts["buckets"] if b.step == step.step]
        assert len({(b.unit, b.numel) for b in own}) == len(own)
    found = Counter((b.unit.collective, b.unit.phase) for b in facts["buckets"] if b.step == 2)
    assert counts == (
        found["all_gather", "forward"],
        found["all_gather", "backward"],
        found["reduce_scatter", "backward"],
        found["all_reduce", "backward"],
    )
    assert sum(found.values()) == sum(counts)


@pytest.mark.parametrize("name", EDGES)
def test_training_is_the_same_and_steps_are_whole(two: Ranks, name: str) -> None:
    """One step for each of the optimizer's, with all of its collectives."""
    for facts in two.run(all_edges):
        check(facts[name], EDGES[name][1])


def test_units_are_named_after_all_that_they_are_of(two: Ranks) -> None:
    """Groups of one module by number, modules of one group by all names; what is tied is once."""
    facts = two.run(all_edges)[0]
    named = {
        name: {
            b.unit.name: [p.name for p in b.parameters]
            for b in facts[name]["assignments"][-1].buckets
        }
        for name in ("several groups", "listed", "tied")
    }
    groups = named["several groups"]
    assert groups["blocks.1[0]"] == ["blocks.1.inner.weight"]
    assert groups["blocks.1[1]"] == ["blocks.1.inner.bias"]
    assert named["listed"]["blocks.2, head"] == [
        "blocks.2.inner.weight", "blocks.2.inner.bias", "head.weight", "head.bias",
    ]  # fmt: skip
    tied = named["tied"]["<root>"]
    assert tied == ["head.weight", "head.bias", "first.weight", "first.bias", "second.bias"]


def test_a_user_s_own_collectives_are_plain(two: Ranks) -> None:
    """They run as they are; what they send is not known."""
    facts = two.run(all_edges)[0]["custom"]
    own = [b for b in facts["buckets"] if b.step == 2]
    plain = {(b.unit.name, b.unit.collective) for b in own if b.wire_bytes is None}
    assert plain == {
        ("blocks.0", "all_gather"), ("blocks.0", "reduce_scatter"), ("blocks.1", "all_reduce"),
    }  # fmt: skip


@on(4)
def test_a_hook_of_the_user_comes_after_the_replicas(rank: int) -> None:
    """What it does is not known; that it was called, and how long, is."""
    found = agree({"hybrid": Setup(build=hybrid)}, rank)["hybrid"]
    check(found, (4, 3, 4, 5))
    own = [b for b in found["buckets"] if b.step == 2 and b.unit.name == "blocks.1"]
    native, theirs = [b for b in own if b.unit.collective == "all_reduce"]
    assert native.wire_bytes == native.gradient_bytes
    assert (theirs.unit.repeat, theirs.wire_bytes) == (1, None)


def _numbers(facts: Facts) -> list[tuple[int, bool, int]]:
    """Return each step's number, whether it is complete, and how many collectives it has."""
    return [(s.step, s.complete, s.bucket_count) for s in facts["steps"]]


SET: dict[str, tuple[Callable[[Any], object], int]] = {
    "gather": (lambda block: block.set_custom_all_gather(CustomGather()), 9),
    "scatter": (lambda block: block.set_custom_reduce_scatter(CustomScatter()), 10),
    "hook": (lambda block: block.set_all_reduce_hook(lambda reduced: None), 11),
    "memory": (lambda block: block.set_allocate_memory_from_process_group_for_comm(True), 8),
}
"""What a script sets anew, and how many collectives of a step are seen after that."""


@on(2)
def test_what_is_set_after_trace_is_said_once(rank: int) -> None:
    """It takes effect as without tracing; steps are not complete from then on."""
    for change, left in SET.values():
        expected = _change_after(sharded(PLAIN), rank, change)
        with heard() as said, traced(model := sharded(PLAIN)) as tracer:
            got = _change_after(model, rank, change)
            steps = _numbers(facts_of(tracer))
        assert equal(expected, got) == [True] * 4
        (line,) = said
        assert line.startswith("the collectives of blocks.1 in net were set anew after")
        assert steps == [(0, True, 11), (1, True, 11), (2, False, left), (3, False, left)]


def _change_after(model: Any, rank: int, change: Callable[[Any], object]) -> list[torch.Tensor]:
    first = train(PLAIN, rank, model, 2)
    change(model.blocks[1])
    return first + train(PLAIN, rank, model, 2)


@on(2)
def test_the_last_tracing_has_the_units(rank: int) -> None:
    """A model that is traced again is the second tracer's; a part of it is then missing there."""
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
        assert _named(one) == [
            ("first", 0, True, 11), ("first", 1, True, 11),
            ("part", 0, True, 3), ("part", 1, True, 3),
        ]  # fmt: skip
        assert _named(other) == [
            ("second", 0, True, 11), ("second", 1, True, 11),
            ("second", 2, False, 8), ("second", 3, False, 8),
        ]  # fmt: skip
    assert torch.equal(expected[-1], local_of(model))
    (line,) = said
    assert line.startswith("the collectives of blocks.0 in second were set anew after")


def _named(tracer: Tracer) -> list[tuple[str, int, bool, int]]:
    return [(s.model, s.step, s.complete, s.bucket_count) for s in facts_of(tracer)["steps"]]


class Failing(Net):
    where = ""

    def fail(self) -> None:
        raise ValueError

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for i, block in enumerate(self.blocks):
            if i == 2 and self.where == "forward":
                self.fail()
            x = block(x)
            if i == 1 and self.where == "backward":
                x = Reduces.apply(x, self.fail)
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


@on(2)
def test_passes_that_raise(rank: int) -> None:
    """A forward pass that raised is of the step that ends next; a backward pass ends its own."""
    edge = Setup(build=lambda: blocks_sharded(Failing(), mesh=mesh_of("one")), step=fails)
    expected = train(edge, rank, sharded(edge), 2)
    model = sharded(edge)
    with traced(model) as tracer:
        got = train(edge, rank, model, 2)
        facts = facts_of(tracer)
    assert equal(expected, got) == [True] * 2
    assert facts["losses"] == {}
    assert _numbers(facts) == [(0, False, 10), (1, True, 11), (2, False, 10), (3, True, 11)]


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


@on(2)
def test_recording_is_switched_off_and_on(rank: int) -> None:
    """Steps are counted meanwhile, and no part of one passes for the whole."""
    whole = [(0, True, 11), (2, False, 7), (3, False, 11), (4, False, 7), (5, True, 11)]
    for build, steps in (
        (plain, whole),
        (shard_of_one, [(0, True, 4), (2, True, 4), (3, True, 4), (5, True, 4)]),
    ):
        edge = Setup(build=build)
        expected = train(edge, rank, sharded(edge), 6, Switches(None))
        model = sharded(edge)
        with traced(model) as tracer:
            got = train(edge, rank, model, 6, Switches(tracer))
            facts = facts_of(tracer)
        gathers = [b for b in facts["buckets"] if b.unit.collective == "all_gather"]
        turns = [b.unit.repeat for b in gathers if b.step == 3]
        assert equal(expected, got) == [True] * 6
        assert _numbers(facts) == steps
        assert set(turns) == ({1} if build is plain else set())
        assert facts["losses"] == {}


@on(2)
def test_a_tracing_that_ends_inside_a_step(rank: int) -> None:
    """What was seen of the step is an incomplete one; the model gets back all that it had."""

    def hooks_of(model: Any) -> int:
        return sum(len(m._forward_pre_hooks) + len(m._forward_hooks) for m in model.modules())

    for name in ("removed", "closed"):
        expected = train(PLAIN, rank, sharded(PLAIN))
        model, steps = sharded(PLAIN), count()
        before = hooks_of(model)
        with Tracer(error_every=0, channel=False) as tracer:
            handle = fsdp.trace(model, tracer=tracer)
            leave = handle.remove if name == "removed" else tracer.close

            def leaves(
                model: Any,
                batch: Batch,
                steps: Any = steps,
                leave: Any = leave,
                tracer: Any = tracer,
            ) -> None:
                loss = model(batch()).square().mean()
                if next(steps) == 2:
                    leave()
                    assert tracer.flush() or not tracer.recording
                loss.backward()

            got = train(PLAIN, rank, model, step=leaves)
            assert _numbers({"steps": tracer.steps()}) == [
                (0, True, 11), (1, True, 11), (2, False, 4),
            ]  # fmt: skip
        assert equal(expected, got) == [True] * STEPS
        assert name == "closed" or hooks_of(model) == before


@on(2)
def test_a_step_that_does_not_end_is_bounded_and_said(rank: int) -> None:
    """80 gathers in forward passes with gradients, of which 30 are kept."""
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
    assert _numbers(facts) == [(0, False, 30), (1, True, 11)]
    assert set(facts["losses"]) == {"step_too_long"}
    assert max(len(layout.buckets) for layout in facts["assignments"]) < 40
    (line,) = said
    assert "put torch.no_grad() around passes that are no training" in line


@on(2)
def test_nothing_grows_and_nothing_is_kept(rank: int) -> None:
    """Over 100 steps; a model that is let go of is gone while its tracer is open."""
    model = sharded(PLAIN)
    with Tracer(error_every=0, channel=False, keep_steps=8, keep_buckets=8) as tracer:
        handle = fsdp.trace(model, tracer=tracer)
        counts = []
        for _ in range(4):
            train(PLAIN, rank, model, 25)
            assert tracer.flush()
            gc.collect()
            counts.append(len(gc.get_objects()))
        alive = [weakref.ref(one) for one in (model, *model.parameters(), handle)]
        del model, handle
        gc.collect()
        left = sum(one() is not None for one in alive)
    assert counts[-1] - counts[1] < 25
    assert left == 0


@on(2)
def test_a_clock_that_fails_harms_nothing(rank: int) -> None:
    """What could not be stamped is counted."""
    for build in (plain, prefetched, shard_of_one):
        edge = Setup(build=build)
        expected = train(edge, rank, sharded(edge))
        model, clock = sharded(edge), FailingClock(every=3)
        with Tracer(error_every=0, channel=False, clock=clock) as tracer:
            handle = fsdp.trace(model, tracer=tracer)
            clock.fails = True
            got = train(edge, rank, model)
            clock.fails = False
            assert tracer.flush()
            handle.remove()
        assert equal(expected, got) == [True] * STEPS
        assert tracer.losses()["stamp_failed"] > 0
        assert "internal_error" not in tracer.losses()


def prefetched() -> Any:
    net = plain()
    net._set_unshard_async_op(True)
    return net
