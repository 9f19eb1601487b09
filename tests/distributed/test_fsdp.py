"""Sharded models (FSDP2) on real ranks: what is recorded is true, and training is the same."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict

from hooktrace.fsdp import hooks
from hooktrace.records import BucketRecord, StepRecord
from tests.distributed.harness import on
from tests.distributed.sharded import (
    FOUR,
    SETUPS,
    STEPS,
    WIDTH,
    Setup,
    Step,
    agree,
    facts_of,
    local_of,
    micro_steps,
    one_pass,
    sharded,
    traced,
    train,
)
from tests.versions import FINALISES_BY_HAND

pytestmark = pytest.mark.slow

Batch = Callable[[], torch.Tensor]
Facts = dict[str, Any]


def check(name: str, facts: Facts) -> None:
    """What holds of every sharded run on a CPU."""
    assert facts["equal"] == [True] * STEPS, name
    assert (facts["losses"], facts["anomalies"], facts["said"]) == ({}, [], []), name
    steps: list[StepRecord] = facts["steps"]
    buckets: list[BucketRecord] = facts["buckets"]
    for step in steps:
        own = [b for b in buckets if b.step == step.step]
        assert step.sharded, name
        assert step.complete, name
        assert step.bucket_count == len(own), name
        assert None not in [b.exposed_ns for b in own], name
        assert step.exposed_ns == sum(b.exposed_ns or 0 for b in own), name
        assert [b.ready_ns for b in own] == sorted(b.ready_ns for b in own), name
        assert all(b.unit is not None for b in own), name
    for layout in facts["assignments"]:
        assert [b.bucket for b in layout.buckets] == list(range(len(layout.buckets))), name


def check_lossless(name: str, facts: Facts) -> None:
    """What holds besides where FSDP's own collectives run."""
    check(name, facts)
    for bucket in facts["buckets"]:
        assert [s.name for s in bucket.stages] == ["wire"], name
        assert bucket.wire_bytes == bucket.gradient_bytes, name


def kinds(facts: Facts, step: int) -> list[str]:
    """Return which collectives a step had, in the order in which they began."""
    return [str(b.unit) for b in facts["buckets"] if b.step == step]


BLOCKS = [f"blocks.{i}" for i in range(3)]
UNITS = ["<root>", *BLOCKS]


@on(2)
def test_training_is_the_same_and_all_of_it_is_recorded(rank: int) -> None:
    """Each way to set FSDP up; each pass that reduces is a step of every unit's three collectives.

    In the order in which FSDP issues them; of micro steps the gathers come three times.
    """
    of_setups = agree(SETUPS, rank)
    for name, facts in of_setups.items():
        check_lossless(name, facts)
        assert [s.step for s in facts["steps"]] == list(range(STEPS)), name
    found = kinds(of_setups["plain"], 2)
    assert found[:4] == [f"{name} all-gather (forward)" for name in UNITS]
    assert sorted(found[4:]) == sorted(
        [f"{name} all-gather (backward)" for name in BLOCKS]
        + [f"{name} reduce-scatter (backward)" for name in UNITS]
    )
    layout = of_setups["plain"]["assignments"][-1]
    head = next(b for b in layout.buckets if str(b.unit).startswith("<root> all"))
    assert [one.name for one in head.parameters] == ["head.weight", "head.bias"]
    assert head.parameters[0].shape == (5, 32)
    gather = "blocks.1 all-gather (forward)"
    found = kinds(of_setups["micro steps"], 2)
    assert [k for k in found if k.startswith(gather)] == [gather, f"{gather} #2", f"{gather} #3"]
    assert sum("reduce-scatter" in kind for kind in found) == 4


@on(4)
def test_hybrid_sharding_and_partial_resharding(rank: int) -> None:
    """Records say which ranks are in a collective: rows and columns of the mesh, or halves.

    Replicas are reduced after the scatter, of its part; not without ``set_requires_all_reduce``.
    """
    of_setups = agree(FOUR, rank)
    own, replicas = rank - rank % 2, rank % 2
    for name, facts in of_setups.items():
        check_lossless(name, facts)
        for bucket in facts["buckets"]:
            again = (bucket.unit.collective, bucket.unit.phase) == ("all_gather", "backward")
            expected = [own, own + 1]
            if bucket.unit.collective == "all_reduce":
                expected = [replicas, replicas + 2]
            elif name == "resharded to two" and not again:
                expected = [0, 1, 2, 3]
            assert [*range(*bucket.members)] == expected, name
    of_step = [b for b in of_setups["hybrid"]["buckets"] if b.step == 2]
    scatters = {b.unit.name: b for b in of_step if b.unit.collective == "reduce_scatter"}
    reductions = {b.unit.name: b for b in of_step if b.unit.collective == "all_reduce"}
    assert set(scatters) == set(reductions) == set(UNITS)
    for name, reduction in reductions.items():
        assert reduction.ready_ns >= scatters[name].done_ns
        assert reduction.numel * 2 == scatters[name].numel
    kept = of_setups["hybrid, kept"]
    reduced = [any("all-reduce" in kind for kind in kinds(kept, step)) for step in range(4)]
    assert reduced == [False, True, False, True]


LOSSY: dict[str, tuple[Callable[[], Any], float]] = {
    "fp16": (hooks.fp16_reduce_scatter, 1e-3),
    "bf16": (hooks.bf16_reduce_scatter, 1e-2),
    "8 bit": (hooks.EightBitReduceScatter, 2e-2),
    "8 bit parameters": (hooks.EightBitAllGather, 5e-2),
    "fp8 parameters": (hooks.Fp8AllGather, 0.2),
}
"""Hooks, and more than their formats round by: far less than a wrong scale would be off by."""


@on(4)
def test_hooks_send_less_and_scale_as_fsdp_asks(rank: int) -> None:
    """The average, and a sum that FSDP divides by another number itself."""
    for setup in (SETUPS["plain"], SETUPS["divided"]):
        plain = _gradients(setup, rank, sharded(setup))
        for name, (make, most) in LOSSY.items():
            kind = "all_gather" if "parameters" in name else "reduce_scatter"
            model = sharded(setup)
            with traced(model, **{kind: make()}) as tracer:
                lossy = _gradients(setup, rank, model)
                hooked = [b for b in facts_of(tracer)["buckets"] if b.unit.collective == kind]
            assert 0 < (lossy - plain).norm() / plain.norm() < most, name
            assert hooked
            for bucket in hooked:
                assert [s.name for s in bucket.stages] == ["compress", "wire", "decompress"]
                assert bucket.wire_bytes < bucket.gradient_bytes
                assert bucket.exposed_ns == bucket.duration_ns


def _gradients(setup: Setup, rank: int, model: Any) -> torch.Tensor:
    numbers = torch.Generator().manual_seed(rank + 1)
    setup.step(model, lambda: torch.randn(8, WIDTH, generator=numbers))
    return torch.cat([p.grad.to_local().flatten() for p in model.parameters()])


@on(2)
def test_a_wait_for_a_late_rank_is_exposed(rank: int) -> None:
    """By a collective within which FSDP waits, and by one that it waits for later."""
    late_s = 1.0  # far more than a busy machine adds to a step of this size
    for name in ("plain", "asynchronous"):
        setup = SETUPS[name]
        model = sharded(setup)
        with traced(model) as tracer:
            for step in range(4):
                dist.barrier()
                time.sleep(late_s if rank == 1 and step == 3 else 0.0)
                _gradients(setup, rank, model)
            steps = facts_of(tracer)["steps"]
        assert (steps[3].exposed_ns / 1e9 > 0.9 * late_s) == (rank == 0), name


@on(2)
def test_error_feedback_makes_up_for_what_was_lost(rank: int) -> None:
    """Over ten steps of the same gradients, which are tiny: a scale has no least value."""

    def tiny(model: Any, batch: Batch) -> None:
        (1e-9 * model(batch()).square().mean()).backward()

    left, setup = {}, Setup(step=tiny)
    plain = _gradients(setup, rank, sharded(setup))
    for kept in (False, True):
        total, model = torch.zeros(()), sharded(setup)
        with traced(model, reduce_scatter=hooks.EightBitReduceScatter(error_feedback=kept)):
            for _ in range(10):
                total = total + _gradients(setup, rank, model)
                for parameter in model.parameters():
                    parameter.grad = None
        left[kept] = float((total / 10 - plain).norm() / plain.norm())
    assert 0 < left[False] < LOSSY["8 bit"][1]
    assert left[True] < left[False] / 3


@on(2)
def test_a_state_dict_of_a_traced_model_loads_into_another_one(rank: int) -> None:
    """Torch's own functions see the same modules and parameters."""
    first, second = sharded(SETUPS["plain"]), sharded(SETUPS["plain"])
    with traced(first):
        train(SETUPS["plain"], rank, first)
        state = get_model_state_dict(first)
    with traced(second):
        set_model_state_dict(second, state)
        assert torch.equal(local_of(first), local_of(second))
        train(SETUPS["plain"], rank, second)


def _in_one_pass(model: Any, batch: Batch) -> None:
    one_pass(model, batch)
    model.finalize_backward()


def _waited_for_later(model: Any, batch: Batch) -> None:
    one_pass(model, batch)
    model.finalize_backward(async_op=True).wait()


def _reduced_at_the_end(model: Any, batch: Batch) -> None:
    """No pass reduces gradients: the finalisation does, of all three."""
    model.set_requires_gradient_sync(False)
    for _ in range(3):
        one_pass(model, batch)
    model.set_requires_gradient_sync(True)
    model.finalize_backward()


def _after_two_passes(model: Any, batch: Batch) -> None:
    one_pass(model, batch)
    one_pass(model, batch)
    model.finalize_backward()


BY_HAND: dict[Step, Step] = {
    _in_one_pass: one_pass, _waited_for_later: one_pass, _reduced_at_the_end: micro_steps,
}  # fmt: skip
"""What a script does by hand, and the same by FSDP."""


@pytest.mark.skipif(not FINALISES_BY_HAND, reason="this torch's FSDP finalises by itself")
@on(2)
def test_a_step_ends_where_the_script_finalises_it(rank: int) -> None:
    """With the same collectives as by FSDP; several passes that reduce are one step then."""
    setup = Setup(prepare=lambda model: model.set_manual_backward_finalization(True))
    setups = {own.__name__: replace(setup, step=own) for own in (*BY_HAND, _after_two_passes)}
    found = agree(setups, rank)
    of_fsdp = agree({own.__name__: Setup(step=theirs) for own, theirs in BY_HAND.items()}, rank)
    for name, facts in found.items():
        check_lossless(name, facts)
        assert [step.step for step in facts["steps"]] == list(range(STEPS)), name
        for step in range(STEPS) if name in of_fsdp else ():
            assert sorted(kinds(facts, step)) == sorted(kinds(of_fsdp[name], step)), name
    several = kinds(found["_after_two_passes"], 2)
    assert several.count("blocks.1 reduce-scatter (backward)") == 1
    assert several.count("blocks.1 reduce-scatter (backward) #2") == 1
