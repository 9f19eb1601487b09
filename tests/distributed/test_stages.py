"""Stages that are hooktrace's own, and a rank that is stopped, on real gloo ranks."""

from __future__ import annotations

import pytest

from hooktrace.records.units import ms
from tests.distributed import stage_scenarios
from tests.distributed.harness import Ranks
from tests.distributed.stage_scenarios import EVERY, STEPS, STOPPED_STEP

pytestmark = pytest.mark.slow

MEETING = 10
"""The step at which ranks that are in step meet for their probes."""


@pytest.mark.parametrize("hook", ["staged", "opaque", "rounds"])
def test_a_probed_step_gives_no_times(two: Ranks, hook: str) -> None:
    """Nor do those at which ranks ask for each other and meet; errors are those of probed steps."""
    for facts in two.run(stage_scenarios.probed_steps):
        found = facts[hook]
        compared = [s for s in range(MEETING + 1, STEPS) if s % EVERY == 0]
        assert found["compared"] == compared
        # In step 2 a rank asks again that came to step 1 before the first one had named a step.
        assert [s for s in found["probed"] if s != 2] == [0, 1, MEETING, *compared]
        assert set(found["counted"]).isdisjoint(found["probed"])
        assert found["summed up"] == len(found["counted"])
        assert found["errors"] == len(compared)


def test_a_local_trial_is_a_probe_too(two: Ranks) -> None:
    """It runs before the hook, on the thread that computes the gradients; the first step begins."""
    for facts in two.run(stage_scenarios.probed_steps):
        found = facts["local"]
        assert found["compared"] == list(range(EVERY, STEPS, EVERY))
        assert found["probed"] == [0, *found["compared"]]


def test_debug_mode_looks_at_every_step(two: Ranks) -> None:
    """So no step shows how long training takes without it."""
    for facts in two.run(stage_scenarios.probed_steps):
        assert facts["debug"]["probed"] == list(range(STEPS))
        assert facts["debug"]["counted"] == []


@pytest.mark.parametrize("hook", ["staged", "opaque", "rounds", "local", "debug"])
def test_stages_follow_each_other_from_ready_to_done(two: Ranks, hook: str) -> None:
    """With a probe in exactly the buckets that are marked; turns are stamped, and no queue."""
    for facts in two.run(stage_scenarios.probed_steps):
        found = facts[hook]
        assert found["without gaps"]
        assert found["with probe"] == {True}
        assert found["without probe"] <= {False}
        assert found["turns"] == (hook == "rounds")
        assert not found["turns are derived"]


def test_a_rank_that_is_stopped_after_it_launched_its_buckets(two: Ranks) -> None:
    """The step is named on both ranks; who was stopped no record tells, and none is blamed."""
    ranks = two.run(stage_scenarios.stopped_after_launching)
    longest = max(ns for facts in ranks for ns in facts["exposed"])
    for rank, facts in enumerate(ranks):
        assert facts["marks"] == [("stall", STOPPED_STEP, rank)]
        ((sentence, blamed, *evidence),) = facts["said"]
        # Not how long it was meant to be: on a busy machine it is stopped for longer.
        assert sentence.startswith(f"Step {STOPPED_STEP} stalled: {ms(longest)} of exposed ")
        assert blamed is None
        assert any("who held it up after that is not known" in line for line in evidence)
