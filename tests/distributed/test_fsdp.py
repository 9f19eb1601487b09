"""Sharded models (FSDP2) on real ranks: what is recorded is true, and training is the same."""

from __future__ import annotations

from typing import Any

import pytest

from hooktrace.records import BucketRecord, StepRecord
from tests.distributed import sharded_scenarios
from tests.distributed.harness import Ranks
from tests.distributed.sharded_scenarios import FOUR, SETUPS, STEPS

pytestmark = pytest.mark.slow


def kinds(facts: dict[str, Any], step: int) -> list[str]:
    """Return which collectives a step had, in the order in which they began."""
    return [str(b.unit) for b in facts["buckets"] if b.step == step]


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
    for layout in facts["layouts"]:
        assert [b.bucket for b in layout.buckets] == list(range(len(layout.buckets)))


def check_lossless(facts: dict[str, Any]) -> None:
    """What holds besides where FSDP's own collectives run."""
    check(facts)
    for bucket in facts["buckets"]:
        assert [s.name for s in bucket.stages] == ["wire"]
        assert bucket.wire_bytes == bucket.gradient_bytes


@pytest.mark.parametrize("name", SETUPS)
def test_training_is_the_same_and_all_of_it_is_recorded(two: Ranks, name: str) -> None:
    """Each way to set FSDP up."""
    for facts in two.read(sharded_scenarios.all_setups):
        check_lossless(facts[name])


@pytest.mark.parametrize("name", FOUR)
def test_hybrid_sharding_and_partial_resharding(four: Ranks, name: str) -> None:
    """What needs four ranks."""
    for facts in four.read(sharded_scenarios.hybrid_setups):
        check_lossless(facts[name])


BLOCKS = [f"blocks.{i}" for i in range(3)]


def test_a_plain_step_is_every_unit_s_three_collectives(two: Ranks) -> None:
    """In the order in which FSDP issues them: the next unit's gather comes before its reduction."""
    facts = two.read(sharded_scenarios.all_setups)[0]["plain"]
    forward = [f"{name} all-gather (forward)" for name in ("<root>", *BLOCKS)]
    assert kinds(facts, 2)[:4] == forward
    assert sorted(kinds(facts, 2)[4:]) == sorted(
        [f"{name} all-gather (backward)" for name in BLOCKS]
        + [f"{name} reduce-scatter (backward)" for name in ("<root>", *BLOCKS)]
    )
    assert [s.step for s in facts["steps"]] == list(range(STEPS))
    head = next(b for b in facts["layouts"][-1].buckets if str(b.unit).startswith("<root> all"))
    assert [one.name for one in head.parameters] == ["head.weight", "head.bias"]
    assert head.parameters[0].shape == (5, 32)


def test_what_is_kept_after_forward_is_not_gathered_again(two: Ranks) -> None:
    """``reshard_after_forward=False``."""
    facts = two.read(sharded_scenarios.all_setups)[0]["not resharded"]
    assert not [kind for kind in kinds(facts, 2) if "(backward)" in kind and "gather" in kind]


def test_micro_steps_are_one_step(two: Ranks) -> None:
    """Its gathers come three times, its reductions once."""
    facts = two.read(sharded_scenarios.all_setups)[0]["micro steps"]
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
    facts = two.read(sharded_scenarios.all_setups)[0]["not last"]
    assert [s.step for s in facts["steps"]] == list(range(2 * STEPS))


def test_replicas_are_reduced_after_the_scatter(four: Ranks) -> None:
    """Each unit's all-reduce is of its part, and begins when its reduce-scatter is over."""
    facts = four.read(sharded_scenarios.hybrid_setups)[0]["hybrid"]
    own = [b for b in facts["buckets"] if b.step == 2]
    scatters = {b.unit.name: b for b in own if b.unit.collective == "reduce_scatter"}
    reductions = {b.unit.name: b for b in own if b.unit.collective == "all_reduce"}
    assert set(scatters) == set(reductions) == {"<root>", *BLOCKS}
    for name, reduction in reductions.items():
        assert reduction.ready_ns >= scatters[name].done_ns
        assert reduction.numel * 2 == scatters[name].numel


def test_records_say_which_ranks_are_in_a_collective(four: Ranks) -> None:
    """Of the mesh, of its rows and columns, and of the halves that are gathered in backward."""
    for rank, facts in enumerate(four.run(sharded_scenarios.hybrid_setups)):
        own, replicas = rank - rank % 2, rank % 2
        for bucket in facts["hybrid"]["buckets"]:
            reduced = bucket.unit.collective == "all_reduce"
            expected = [replicas, replicas + 2] if reduced else [own, own + 1]
            assert [*range(*bucket.members)] == expected
        for bucket in facts["resharded to two"]["buckets"]:
            again = (bucket.unit.collective, bucket.unit.phase) == ("all_gather", "backward")
            expected = [own, own + 1] if again else [0, 1, 2, 3]
            assert [*range(*bucket.members)] == expected
        for layout in facts["hybrid"]["layouts"]:
            of = {b.bucket: b.members for b in facts["hybrid"]["buckets"]}
            assert {b.bucket: b.members for b in layout.buckets}.items() <= of.items()


def test_scattered_gradients_that_wait_are_not_reduced(four: Ranks) -> None:
    """``set_requires_all_reduce(False)``: a step without all-reduces, and one with."""
    facts = four.read(sharded_scenarios.hybrid_setups)[0]["hybrid, kept"]
    reduced = [any("all-reduce" in kind for kind in kinds(facts, step)) for step in range(4)]
    assert reduced == [False, True, False, True]


ERRORS = {
    "fp16": 1e-3,
    "bf16": 1e-2,
    "8 bit": 2e-2,
    "8 bit parameters": 5e-2,
    "fp8 parameters": 0.2,
}
"""More than each hook's format rounds by, and far less than a wrong scale would be off by."""


@pytest.mark.parametrize("setup", ["plain", "divided"])
@pytest.mark.parametrize("name", ERRORS)
def test_hooks_send_less_and_scale_as_fsdp_asks(four: Ranks, name: str, setup: str) -> None:
    """The average, and a sum that FSDP divides by another number itself."""
    for facts in four.read(sharded_scenarios.lossy_hooks):
        found = facts[f"{name}, {setup}"]
        assert 0 < found["error"] < ERRORS[name]
        kind = "all_gather" if "parameters" in name else "reduce_scatter"
        hooked = [b for b in found["buckets"] if b.unit.collective == kind]
        assert hooked
        for bucket in hooked:
            assert [s.name for s in bucket.stages] == ["compress", "wire", "decompress"]
            assert bucket.wire_bytes < bucket.gradient_bytes
            assert bucket.exposed_ns == bucket.duration_ns


def test_bytes_tell_small_gradients_from_nothing(two: Ranks) -> None:
    """Of a loss that is a mean over many; a scale has no least value that they are below."""
    for error in two.run(sharded_scenarios.tiny_gradients):
        assert 0 < error < ERRORS["8 bit"]


def test_error_feedback_makes_up_for_what_was_lost(two: Ranks) -> None:
    """Over ten steps of the same gradients."""
    for facts in two.run(sharded_scenarios.feedback):
        assert facts["with"] < facts["without"] / 3


def test_a_state_dict_of_a_traced_model_loads_into_another_one(two: Ranks) -> None:
    """Torch's own functions see the same modules and parameters."""
    assert two.run(sharded_scenarios.state_round_trip) == [True, True]


def test_one_rank_communicates_nothing(two: Ranks) -> None:
    """So nothing is recorded, and that is said."""
    for facts in two.run(sharded_scenarios.alone):
        assert facts["steps"] == []
