"""Sharded models in unusual setups on real ranks: training is the same, and no step is untrue."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any
from unittest import mock

import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    checkpoint_wrapper,
)
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard
from torch.utils.checkpoint import checkpoint

from hooktrace import Tracer, fsdp
from hooktrace.staging import units
from tests.distributed.harness import on
from tests.distributed.models import FailingClock, heard
from tests.distributed.sharded import (
    STEPS,
    WIDTH,
    Net,
    Setup,
    agree,
    equal,
    facts_of,
    mesh_of,
    one_pass,
    sharded,
    traced,
    train,
)
from tests.distributed.test_fsdp import check

pytestmark = pytest.mark.slow

Batch = Callable[[], torch.Tensor]

Facts = dict[str, Any]
PLAIN = Setup()


class Twice(nn.Module):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x) + self.net(-x)


def checkpointed_blocks() -> Any:
    """Checkpoint activations around what is sharded."""
    net, mesh = Net(), mesh_of("one")
    for i, block in enumerate(net.blocks):
        wrapped = fully_shard(block, mesh=mesh)
        net.blocks[i] = checkpoint_wrapper(wrapped, CheckpointImpl.REENTRANT)
    return fully_shard(net, mesh=mesh)


def with_gradients(model: Any, batch: Batch) -> None:
    """Have gradients of the input too, without which a re-entrant checkpoint gives none."""
    one_pass(model, lambda: batch().requires_grad_())


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


KINDS = (
    *(("all_gather", phase) for phase in ("forward", "backward")),
    *((kind, "backward") for kind in ("reduce_scatter", "all_reduce")),
)
USUAL = (4, 3, 4, 0)
"""How many of each kind a step has, of four units; the root is kept."""


EDGES: dict[str, tuple[Setup, tuple[int, int, int, int]]] = {
    "offloaded": (Setup({"offload_policy": CPUOffloadPolicy(pin_memory=False)}), USUAL),
    "reentrant": (Setup(build=checkpointed_blocks, step=with_gradients), USUAL),
    # The root was kept by the evaluation in the step before.
    "evaluation": (Setup(step=evaluates), (3, 3, 4, 0)),
    "twice": (
        Setup(build=lambda: fully_shard(Twice(sharded(PLAIN)), mesh=mesh_of("one"))),
        (8, 6, 4, 0),
    ),
}
"""Ways to shard and to train, and the collectives of their step 2."""


@on(2)
def test_training_is_the_same_and_steps_are_whole(rank: int) -> None:
    """One step for each of the optimizer's, with all of its collectives."""
    for name, facts in agree({name: setup for name, (setup, _) in EDGES.items()}, rank).items():
        check(name, facts)
        assert [step.step for step in facts["steps"]] == list(range(STEPS)), name
        own = [b for b in facts["buckets"] if b.step == 2]
        assert len({(b.unit, b.numel) for b in own}) == len(own), name
        found = Counter((b.unit.collective, b.unit.phase) for b in own)
        assert found == Counter(dict(zip(KINDS, EDGES[name][1], strict=True))), name


def _numbers(facts: Facts) -> list[tuple[int, bool, int]]:
    """Return each step's number, whether it is complete, and how many collectives it has."""
    return [(s.step, s.complete, s.bucket_count) for s in facts["steps"]]


@on(2)
def test_what_is_set_after_trace_is_said_once(rank: int) -> None:
    """It takes effect as without tracing; steps are not complete from then on."""

    def change_after(model: Any) -> list[torch.Tensor]:
        first = train(PLAIN, rank, model, 2)
        model.blocks[1].set_all_reduce_hook(lambda reduced: reduced.mul_(0.5))
        return first + train(PLAIN, rank, model, 2)

    expected = change_after(sharded(PLAIN))
    with heard() as said, traced(model := sharded(PLAIN)) as tracer:
        got = change_after(model)
        steps = _numbers(facts_of(tracer))
    assert equal(expected, got) == [True] * 4
    (line,) = said
    assert line.startswith("the collectives of blocks.1 in net were set anew after")
    assert steps == [(n, n < 2, 11) for n in range(4)]


@on(2)
def test_a_tracing_that_ends_inside_a_step(rank: int) -> None:
    """Or pauses there: the step is an incomplete one, and the model gets back all that it had."""

    def hooks_of(model: Any) -> int:
        return sum(len(m._forward_pre_hooks) + len(m._forward_hooks) for m in model.modules())

    expected = train(PLAIN, rank, sharded(PLAIN))
    for name in ("removed", "closed", "paused"):
        model, steps = sharded(PLAIN), count()
        before = hooks_of(model)
        with Tracer(error_every=0, channel=False) as tracer:
            handle = fsdp.trace(model, tracer=tracer)
            pause = partial(setattr, tracer, "recording", False)
            leave = {"removed": handle.remove, "closed": tracer.close, "paused": pause}[name]

            def leaves(model: Any, batch: Batch, steps: Any = steps, leave: Any = leave) -> None:
                loss = model(batch()).square().mean()
                if next(steps) == 2:
                    leave()
                loss.backward()

            got = train(PLAIN, rank, model, step=leaves)
            tracer.flush()
            assert _numbers({"steps": tracer.steps()}) == [
                (0, True, 11), (1, True, 11), (2, False, 4),
            ]  # fmt: skip
        assert equal(expected, got) == [True] * STEPS
        assert name != "removed" or hooks_of(model) == before


@on(2)
def test_a_step_that_does_not_end_is_bounded_and_said(rank: int) -> None:
    """80 gathers in forward passes with gradients, of which 30 are kept."""
    model = sharded(PLAIN)
    limit = mock.patch.object(units, "MOST_CALLS", 30)
    with limit, heard() as said, traced(model) as tracer:
        for _ in range(20):
            model(torch.randn(8, WIDTH))
        one_pass(model, lambda: torch.randn(8, WIDTH))
        one_pass(model, lambda: torch.randn(8, WIDTH))
        facts = facts_of(tracer)
    assert _numbers(facts) == [(0, False, 30), (1, True, 11)]
    assert set(facts["losses"]) == {"step_too_long"}
    (line,) = said
    assert "put torch.no_grad() around passes that are no training" in line


@on(2)
def test_nothing_grows_and_nothing_is_kept(rank: int) -> None:
    """Over 30 steps; a model that is let go of is gone while its tracer is open."""
    model = sharded(PLAIN)
    with Tracer(error_every=0, channel=False, keep_steps=8, keep_buckets=8) as tracer:
        handle = fsdp.trace(model, tracer=tracer)
        counts = []
        for steps in (10, 30):
            train(PLAIN, rank, model, steps)
            assert tracer.flush()
            gc.collect()
            counts.append(len(gc.get_objects()))
        alive = [weakref.ref(one) for one in (model, *model.parameters(), handle)]
        del model, handle
        gc.collect()
        left = sum(one() is not None for one in alive)
    assert counts[1] - counts[0] < 15
    assert left == 0


@on(2)
def test_a_clock_that_fails_harms_nothing(rank: int) -> None:
    """What could not be stamped is counted."""
    expected = train(PLAIN, rank, sharded(PLAIN))
    model, clock = sharded(PLAIN), FailingClock(every=3)
    with Tracer(error_every=0, channel=False, clock=clock) as tracer:
        handle = fsdp.trace(model, tracer=tracer)
        clock.fails = True
        got = train(PLAIN, rank, model)
        clock.fails = False
        assert tracer.flush()
        handle.remove()
    assert equal(expected, got) == [True] * STEPS
    assert tracer.losses()["stamp_failed"] > 0
    assert "internal_error" not in tracer.losses()
