"""Sharded models in unusual setups on real ranks: training is the same, and no step is untrue."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.distributed import sharded_edge_scenarios as scenarios
from tests.distributed.harness import Ranks
from tests.distributed.sharded_edge_scenarios import EDGES
from tests.distributed.sharded_scenarios import STEPS
from tests.distributed.test_fsdp import check as check_sharded

pytestmark = pytest.mark.slow

PLAIN = (4, 3, 4, 0)
"""All-gathers in forward and in backward, reduce-scatters and all-reduces, of four units; the
root is kept."""

COUNTS = {
    "several groups": (8, 6, 8, 0),
    "listed": (3, 3, 3, 0),
    "custom": (4, 3, 4, 1),
    "reentrant around, kept": (4, 0, 4, 0),
    # Each unit is a root of its own, and kept.
    "reentrant around, no root": (3, 0, 3, 0),
    "no root": (3, 0, 3, 0),
    # The root was kept by the evaluation in the step before.
    "evaluation": (3, 3, 4, 0),
    "generation": (3, 3, 4, 0),
    "twice": (8, 6, 4, 0),
    # The root is kept between its two calls, and the last block too.
    "twice, by hand": (7, 5, 4, 0),
    "shard of one": (0, 0, 0, 4),
}
"""Of step 2, where they are not ``PLAIN``."""


def check(facts: dict[str, Any], counts: tuple[int, int, int, int]) -> None:
    """What holds of every one."""
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
    for facts in two.read(scenarios.all_edges):
        check(facts[name], COUNTS.get(name, PLAIN))


def test_a_hook_of_the_user_comes_after_the_replicas(four: Ranks) -> None:
    """What it does is not known; that it was called, and how long, is."""
    for facts in four.run(scenarios.all_hybrid):
        found = facts["hybrid, hooked"]
        check(found, (4, 3, 4, 5))
        own = [b for b in found["buckets"] if b.step == 2 and b.unit.name == "blocks.1"]
        native, theirs = [b for b in own if b.unit.collective == "all_reduce"]
        assert native.wire_bytes == native.gradient_bytes
        assert (theirs.unit.turn, theirs.wire_bytes) == (1, None)


def test_units_are_named_after_all_that_they_are_of(two: Ranks) -> None:
    """Groups of one module by number, modules of one group by all names; what is tied is once."""
    facts = two.read(scenarios.all_edges)[0]
    named = {
        name: {
            b.unit.name: [p.name for p in b.parameters] for b in facts[name]["layouts"][-1].buckets
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


def test_a_user_s_own_collectives_are_opaque(two: Ranks) -> None:
    """They run as they are; what they send is not known."""
    facts = two.read(scenarios.all_edges)[0]["custom"]
    own = [b for b in facts["buckets"] if b.step == 2]
    opaque = {(b.unit.name, b.unit.collective) for b in own if b.wire_bytes is None}
    assert opaque == {
        ("blocks.0", "all_gather"), ("blocks.0", "reduce_scatter"), ("blocks.1", "all_reduce"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "left"), [("gather", 9), ("scatter", 10), ("hook", 11), ("memory", 8)]
)
def test_what_is_set_after_trace_is_said_once(two: Ranks, name: str, left: int) -> None:
    """It takes effect as without tracing; steps are not complete from then on."""
    for facts in two.run(scenarios.set_anew):
        found = facts[name]
        assert found["equal"] == [True] * 4
        (said,) = found["said"]
        assert said.startswith("the collectives of blocks.1 in net were set anew after")
        assert found["steps"] == [(0, True, 11), (1, True, 11), (2, False, left), (3, False, left)]


def test_the_last_tracing_has_the_units(two: Ranks) -> None:
    """A model that is traced again is the second tracer's; a part of it is then missing there."""
    for facts in two.run(scenarios.traced_twice):
        assert facts["equal"]
        assert facts["one"] == [
            ("first", 0, True, 11), ("first", 1, True, 11),
            ("part", 0, True, 3), ("part", 1, True, 3),
        ]  # fmt: skip
        assert facts["other"] == [
            ("second", 0, True, 11), ("second", 1, True, 11),
            ("second", 2, False, 8), ("second", 3, False, 8),
        ]  # fmt: skip
        (said,) = facts["said"]
        assert said.startswith("the collectives of blocks.0 in second were set anew after")


def test_passes_that_raise(two: Ranks) -> None:
    """A forward pass that raised is of the step that ends next; a backward pass ends its own."""
    for facts in two.run(scenarios.failures):
        assert facts["equal"] == [True] * 2
        assert facts["losses"] == {}
        assert facts["steps"] == [(0, False, 10), (1, True, 11), (2, False, 10), (3, True, 11)]


def test_recording_is_switched_off_and_on(two: Ranks) -> None:
    """Steps are counted meanwhile, and no part of one passes for the whole."""
    for facts in two.run(scenarios.switched):
        equal, steps, turns, losses = facts["sharded"]
        assert (equal, turns, losses) == ([True] * 6, [1], {})
        assert steps == [(0, True, 11), (2, False, 7), (3, False, 11), (4, False, 7), (5, True, 11)]
        equal, steps, _, losses = facts["replicated"]
        assert (equal, losses) == ([True] * 6, {})
        assert steps == [(0, True, 4), (2, True, 4), (3, True, 4), (5, True, 4)]


def test_a_tracing_that_ends_inside_a_step(two: Ranks) -> None:
    """What was seen of the step is an incomplete one; the model gets back all that it had."""
    for facts in two.run(scenarios.left_early):
        for name in ("removed", "closed"):
            assert facts[name] == ([True] * STEPS, [(0, True, 11), (1, True, 11), (2, False, 4)])
        assert facts["removed, hooks"] == facts["hooks before"]


def test_a_step_that_does_not_end_is_bounded_and_said(two: Ranks) -> None:
    """80 gathers in forward passes with gradients, of which 30 are kept."""
    for facts in two.run(scenarios.endless):
        assert facts["steps"] == [(0, False, 30), (1, True, 11)]
        assert set(facts["losses"]) == {"step_too_long"}
        assert max(facts["layouts"]) < 40
        (said,) = facts["said"]
        assert "put torch.no_grad() around passes that are no training" in said


def test_nothing_grows_and_nothing_is_kept(two: Ranks) -> None:
    """Over 200 steps; a model that is let go of is gone while its tracer is open."""
    for facts in two.run(scenarios.memory):
        assert facts["counts"][-1] - facts["counts"][1] < 50
        assert facts["left"] == 0


def test_a_forked_child_has_nothing_of_the_step(two: Ranks) -> None:
    """The parent's step is whole."""
    for facts in two.run(scenarios.forked):
        assert facts == {"code": 0, "steps": [(0, True, 11)]}


def test_a_clock_that_fails_harms_nothing(two: Ranks) -> None:
    """What could not be stamped is counted."""
    for facts in two.run(scenarios.without_time):
        assert facts.pop("equal") == [[True] * STEPS] * 3
        for losses in facts.values():
            assert losses["stamp_failed"] > 0
            assert "internal_error" not in losses
