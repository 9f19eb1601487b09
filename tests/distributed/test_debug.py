"""Debug mode, the local error and models that are never synchronised, on 2 real gloo ranks."""

from __future__ import annotations

import pytest

from tests.distributed import debug_scenarios, local_error_scenarios
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


def test_a_model_that_is_never_synchronised_is_named(two: Ranks) -> None:
    """After 100 backward passes; those under no_sync() are meant to be so."""
    for facts in two.run(debug_scenarios.silent):
        assert facts == {
            "ddp": [],
            "no_sync": [],
            "ddp.module": [("not_synchronised", 0, -1)],
            "later ddp.module": [("not_synchronised", 8, -1)],
            "forward only in no_sync": [("not_synchronised", 0, -1)],
        }


@pytest.mark.parametrize("hook", local_error_scenarios.EXPECTED)
def test_the_local_error_is_that_of_compress_and_decompress(two: Ranks, hook: str) -> None:
    """As computed from the rank's own gradients; nothing was sent for it."""
    for facts in two.run(local_error_scenarios.known_local_errors):
        rows = facts[hook]
        assert [step for step, *_ in rows] == list(range(1, local_error_scenarios.STEPS))
        assert len({bucket for _, bucket, *_ in rows}) == BUCKETS
        for _, _, scope, measured, computed in rows:
            assert scope == "local"
            assert measured == pytest.approx(computed, rel=1e-6)
            assert (measured == 0) == (hook in ("allreduce", "noop"))


def test_local_probes_leave_the_hook_as_it_was(two: Ranks) -> None:
    """Residuals, warm starts and random numbers: the gradients are the same bit for bit."""
    for facts in two.run(local_error_scenarios.left_alone):
        assert facts == dict.fromkeys(facts, True)
        assert len(facts) == 9


def test_a_local_error_that_cannot_be_known_is_said_to_be_so(two: Ranks) -> None:
    """Once, with the reason, and training goes on."""
    for facts in two.run(local_error_scenarios.not_measurable):
        for name, reason in (("opaque", "is opaque"), ("gossip", "without sending")):
            lines, unmeasured, steps = facts[name]
            assert len(lines) == 1
            assert reason in lines[0]
            assert unmeasured
            assert steps == local_error_scenarios.STEPS


def test_one_rank_may_measure_its_local_error_alone(two: Ranks) -> None:
    """No other rank is asked."""
    assert two.run(local_error_scenarios.alone) == [local_error_scenarios.STEPS - 1, 0]
