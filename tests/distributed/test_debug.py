"""Debug mode, on 2 real gloo ranks."""

from __future__ import annotations

import pytest

from tests.distributed import debug_scenarios
from tests.distributed.debug_scenarios import INNOCENT, KEEPING
from tests.distributed.harness import Ranks

pytestmark = pytest.mark.slow

BUCKETS = 6


@pytest.mark.parametrize("last_only", [True, False])
@pytest.mark.parametrize("what", KEEPING)
def test_a_hook_that_holds_a_buckets_memory_is_named(
    two: Ranks, what: str, last_only: bool
) -> None:
    """For each bucket once, also where the grads are views of it, and where one step is held."""
    for facts in two.run(debug_scenarios.memory):
        assert facts[f"{what}, {last_only}"] == [("holds_memory", i) for i in range(BUCKETS)]


def test_a_result_that_changes_after_its_future_completed_is_named(two: Ranks) -> None:
    """For each bucket that changed; the last one of a step did not."""
    for facts in two.run(debug_scenarios.memory):
        changed = [("changed_after_completion", i) for i in range(BUCKETS - 1)]
        assert facts["doubles"] == changed
        assert facts["doubles at the end"] == [("changed_after_completion", 0)]


def test_debug_mode_has_nothing_to_say_of_right_hooks(two: Ranks) -> None:
    """Hooktrace's, torch's, and those that keep what may be kept, however DDP is set up."""
    wrong = {f"{what}, {last}" for what in KEEPING for last in (True, False)}
    wrong |= {"doubles", "doubles at the end"}
    for facts in two.run(debug_scenarios.memory):
        right = {name: found for name, found in facts.items() if name not in wrong}
        assert len(right) == 2 * len(INNOCENT) + 2 + 12 + 2
        assert set(map(tuple, right.values())) == {()}


def test_debug_mode_leaves_training_as_it_is(two: Ranks) -> None:
    """Bit for bit."""
    for facts in two.run(debug_scenarios.untouched_by_debug):
        assert facts == dict.fromkeys(facts, True)
        assert len(facts) == 3


def test_a_rank_that_has_run_out_of_data_is_watched_too(two: Ranks) -> None:
    """Its buckets are made for the purpose, outside any backward pass."""
    assert two.run(debug_scenarios.joined_while_watched) == [([], 20, 0)] * 2


def test_the_first_nan_has_its_step_parameter_and_rank(two: Ranks) -> None:
    """On the rank that had it; the other one says that it came from elsewhere."""
    ranks = two.run(debug_scenarios.not_finite)
    assert ("nonfinite_gradient", 3, 3, "2.weight", 1) in ranks[1]["came in"]
    assert ranks[0]["came in"] == [("nonfinite_average", 3, 3, "2.weight", 0)]
    for rank, facts in enumerate(ranks):
        found = facts["overflow"]
        assert {(kind, step, r) for kind, step, _, _, r in found} == {
            ("nonfinite_average", 3, rank)
        }
