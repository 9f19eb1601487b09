"""Sharded models (FSDP2) on real ranks: what is recorded is true, and training is the same."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

from hooktrace.analysis.run import STAGE_NAMES, UNKNOWN, load
from hooktrace.analysis.run.scene import Scene
from hooktrace.fsdp import hooks
from hooktrace.records import BucketRecord, StepRecord
from hooktrace.records.files import find_records
from tests.analysis.run.files import run_of, text_of, write_ranks
from tests.distributed.harness import Ranks, on
from tests.distributed.sharded import (
    FOUR,
    SETUPS,
    STEPS,
    WIDTH,
    Net,
    Setup,
    Step,
    agree,
    facts_of,
    micro_steps,
    one_pass,
    sharded,
    traced,
    train,
)
from tests.versions import FINALISES_BY_HAND

pytestmark = pytest.mark.slow

Batch = Callable[[], torch.Tensor]


def all_setups(rank: int) -> dict[str, dict[str, Any]]:
    return agree(SETUPS, rank)


def check(facts: dict[str, Any]) -> None:
    """What holds of every sharded run on a CPU."""
    assert facts["equal"] == [True] * STEPS
    assert facts["losses"] == {}
    assert facts["anomalies"] == []
    assert facts["said"] == []
    steps: list[StepRecord] = facts["steps"]
    buckets: list[BucketRecord] = facts["buckets"]
    for step in steps:
        own = [b for b in buckets if b.step == step.step]
        assert step.sharded
        assert step.complete
        assert step.bucket_count == len(own)
        exposed = [b.exposed_ns for b in own]
        assert None not in exposed
        assert step.exposed_ns == sum(b.exposed_ns or 0 for b in own)
        assert [b.ready_ns for b in own] == sorted(b.ready_ns for b in own)
        for bucket in own:
            assert bucket.unit is not None
    for layout in facts["assignments"]:
        assert [b.bucket for b in layout.buckets] == list(range(len(layout.buckets)))


def check_lossless(facts: dict[str, Any]) -> None:
    """What holds besides where FSDP's own collectives run."""
    check(facts)
    for bucket in facts["buckets"]:
        assert [s.name for s in bucket.stages] == ["wire"]
        assert bucket.wire_bytes == bucket.gradient_bytes


def kinds(facts: dict[str, Any], step: int) -> list[str]:
    """Return which collectives a step had, in the order in which they began."""
    return [str(b.unit) for b in facts["buckets"] if b.step == step]


BLOCKS = [f"blocks.{i}" for i in range(3)]


def test_a_plain_step_is_every_unit_s_three_collectives(two: Ranks) -> None:
    """In the order in which FSDP issues them: the next unit's gather comes before its reduction."""
    facts = two.run(all_setups)[0]["plain"]
    forward = [f"{name} all-gather (forward)" for name in ("<root>", *BLOCKS)]
    assert kinds(facts, 2)[:4] == forward
    assert sorted(kinds(facts, 2)[4:]) == sorted(
        [f"{name} all-gather (backward)" for name in BLOCKS]
        + [f"{name} reduce-scatter (backward)" for name in ("<root>", *BLOCKS)]
    )
    assert [s.step for s in facts["steps"]] == list(range(STEPS))
    head = next(b for b in facts["assignments"][-1].buckets if str(b.unit).startswith("<root> all"))
    assert [one.name for one in head.parameters] == ["head.weight", "head.bias"]
    assert head.parameters[0].shape == (5, 32)


def test_micro_steps_are_one_step(two: Ranks) -> None:
    """Its gathers come three times, its reductions once."""
    facts = two.run(all_setups)[0]["micro steps"]
    assert [s.step for s in facts["steps"]] == list(range(STEPS))
    found = kinds(facts, 2)
    assert [k for k in found if k.startswith("blocks.1 all-gather (forward)")] == [
        "blocks.1 all-gather (forward)",
        "blocks.1 all-gather (forward) #2",
        "blocks.1 all-gather (forward) #3",
    ]
    assert sum("reduce-scatter" in kind for kind in found) == 4


def test_each_pass_that_reduces_is_a_step(two: Ranks) -> None:
    """As with DDP, whatever the optimizer does."""
    facts = two.run(all_setups)[0]["not last"]
    assert [s.step for s in facts["steps"]] == list(range(2 * STEPS))


def check_scene(scene: Scene, ranks: list[dict[str, Any]], *, synchronous: bool = True) -> None:
    """What holds of each sharded run; of an asynchronous gather what outlasts it is not drawn."""
    assert len(scene.numbers) == len(ranks)
    for rank, facts in enumerate(ranks):
        buckets: list[BucketRecord] = facts["buckets"]
        own, spans = (one.at(one.of_rank(rank)) for one in (scene.bars, scene.exposed))
        assert {str(scene.units[i]) for i in own.unit} == {str(b.unit) for b in buckets}
        lengths = (spans.end - spans.start).tolist()
        assert sum(lengths) == sum(min(b.exposed_ns or 0, b.done_ns - b.ready_ns) for b in buckets)
        if synchronous:
            assert (spans.start[1:] >= spans.end[:-1]).all()  # one thread waits for one at a time
            assert sum(lengths) == sum(step.exposed_ns for step in facts["steps"])
    assert len(scene.bars) == sum(len(facts["buckets"]) for facts in ranks)


KINDS = ["all-gather fwd", "all-gather bwd", "reduce-scatter"]


def scene_from(folder: Path, ranks: list[dict[str, Any]]) -> Scene:
    texts = {}
    for rank, facts in enumerate(ranks):
        steps = [
            (step, tuple(b for b in facts["buckets"] if b.step == step.step))
            for step in facts["steps"]
        ]
        texts[rank] = text_of(run_of(rank, world_size=len(ranks)), steps)
    write_ranks(folder, texts)
    return Scene(load(find_records(folder)), "net")


@pytest.mark.parametrize("name", SETUPS)
def test_training_is_the_same_and_all_of_it_is_recorded(
    two: Ranks, tmp_path: Path, name: str
) -> None:
    """Each way to set FSDP up; the tab's exposed stretches add up to the step's."""
    ranks = [facts[name] for facts in two.run(all_setups)]
    for facts in ranks:
        check_lossless(facts)
    scene = scene_from(tmp_path, ranks)
    check_scene(scene, ranks, synchronous=name != "asynchronous")
    expected = [KINDS[0], KINDS[2]] if name == "not resharded" else KINDS
    assert [title for title in scene.titles if title] == expected


def hybrid_setups(rank: int) -> dict[str, dict[str, Any]]:
    return agree(FOUR, rank)


@pytest.mark.parametrize("name", FOUR)
def test_hybrid_sharding_and_partial_resharding(four: Ranks, tmp_path: Path, name: str) -> None:
    """All-reduces have a row of their own in the tab; waits of a part of the ranks are known."""
    ranks = [facts[name] for facts in four.run(hybrid_setups)]
    for facts in ranks:
        check_lossless(facts)
    scene = scene_from(tmp_path, ranks)
    check_scene(scene, ranks)
    replicated = [] if name == "resharded to two" else ["all-reduce"]
    assert [title for title in scene.titles if title] == [*KINDS, *replicated]
    assert scene.waits.why_unknown is None
    for rank, (track, (waited, _)) in enumerate(zip(scene.tracks, scene.waits.waited, strict=True)):
        assert (waited[track.stages.name == STAGE_NAMES.index("wire")] != UNKNOWN).all()
        for one in track.facts:
            assert one.members is not None
            assert rank in range(*one.members)


def test_replicas_are_reduced_after_the_scatter(four: Ranks) -> None:
    """Each unit's all-reduce is of its part, and begins when its reduce-scatter is over."""
    facts = four.run(hybrid_setups)[0]["hybrid"]
    own = [b for b in facts["buckets"] if b.step == 2]
    scatters = {b.unit.name: b for b in own if b.unit.collective == "reduce_scatter"}
    reductions = {b.unit.name: b for b in own if b.unit.collective == "all_reduce"}
    assert set(scatters) == set(reductions) == {"<root>", *BLOCKS}
    for name, reduction in reductions.items():
        assert reduction.ready_ns >= scatters[name].done_ns
        assert reduction.numel * 2 == scatters[name].numel


def test_records_say_which_ranks_are_in_a_collective(four: Ranks) -> None:
    """Of the mesh, of its rows and columns, and of the halves that are gathered in backward."""
    for rank, facts in enumerate(four.run(hybrid_setups)):
        own, replicas = rank - rank % 2, rank % 2
        for bucket in facts["hybrid"]["buckets"]:
            reduced = bucket.unit.collective == "all_reduce"
            expected = [replicas, replicas + 2] if reduced else [own, own + 1]
            assert [*range(*bucket.members)] == expected
        for bucket in facts["resharded to two"]["buckets"]:
            again = (bucket.unit.collective, bucket.unit.phase) == ("all_gather", "backward")
            expected = [own, own + 1] if again else [0, 1, 2, 3]
            assert [*range(*bucket.members)] == expected
        for layout in facts["hybrid"]["assignments"]:
            of = {b.bucket: b.members for b in facts["hybrid"]["buckets"]}
            assert {b.bucket: b.members for b in layout.buckets}.items() <= of.items()


def test_scattered_gradients_that_wait_are_not_reduced(four: Ranks) -> None:
    """``set_requires_all_reduce(False)``: a step without all-reduces, and one with."""
    facts = four.run(hybrid_setups)[0]["hybrid, kept"]
    reduced = [any("all-reduce" in kind for kind in kinds(facts, step)) for step in range(4)]
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
def test_bytes_tell_small_gradients_from_nothing(rank: int) -> None:
    """Of a loss that is a mean over many; a scale has no least value that they are below."""

    def tiny(model: nn.Module, batch: Batch) -> None:
        (1e-9 * model(batch()).square().mean()).backward()

    setup = Setup(step=tiny)
    plain = _gradients(setup, rank, sharded(setup))
    model = sharded(setup)
    with traced(model, reduce_scatter=hooks.EightBitReduceScatter()):
        lossy = _gradients(setup, rank, model)
    error = float((lossy - plain).norm() / plain.norm())
    assert 0 < error < LOSSY["8 bit"][1]


@on(2)
def test_error_feedback_makes_up_for_what_was_lost(rank: int) -> None:
    """Over ten steps of the same gradients."""
    left = {}
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
        left[kept] = float((total / 10 - plain).norm() / plain.norm())
    assert left[True] < left[False] / 3


@on(2)
def test_a_state_dict_of_a_traced_model_loads_into_another_one(rank: int) -> None:
    """Torch's own functions see the same modules and parameters."""
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
    assert torch.equal(mine, loaded)


@on(2)
def test_one_rank_communicates_nothing(rank: int) -> None:
    """So nothing is recorded, and that is said."""
    group = dist.new_group([rank], use_local_synchronization=True)
    mesh = DeviceMesh.from_group(group, "cpu")
    model = Net()
    fully_shard(model, mesh=mesh)
    with traced(model) as tracer:
        train(Setup(), rank, model)
    facts = facts_of(tracer)
    assert facts["steps"] == []


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
        check_lossless(facts)
        assert [step.step for step in facts["steps"]] == list(range(STEPS)), name
        for step in range(STEPS) if name in of_fsdp else ():
            assert sorted(kinds(facts, step)) == sorted(kinds(of_fsdp[name], step)), name
    several = kinds(found["_after_two_passes"], 2)
    assert several.count("blocks.1 reduce-scatter (backward)") == 1
    assert several.count("blocks.1 reduce-scatter (backward) #2") == 1
