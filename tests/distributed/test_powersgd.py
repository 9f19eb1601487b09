"""PowerSGD against torch's, and the batched one against its formulas, on 2 and 4 gloo ranks.

PowerSGD's settings make a product of 288 cases.  On 2 ranks every pair of two settings is compared
step by step and over 30 steps, and those of two dtypes over a random start and one step from it;
on 4 ranks each setting is compared step by step, and warm starts with error feedback over 30 steps.
"""

from __future__ import annotations

import pytest

from tests.distributed import (
    batched_power_scenarios,
    power_resume_scenarios,
    power_scenarios,
)
from tests.distributed.harness import Ranks, Scenario

pytestmark = pytest.mark.slow


def _over(ranks: list[dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Return the cases with a difference over its tolerance, on any rank."""
    return {
        f"rank {rank}: {case}": found
        for rank, facts in enumerate(ranks)
        for case, found in facts.items()
        if not max(found.values()) <= 1
    }


@pytest.mark.parametrize(
    "scenario", [power_scenarios.power_each_step, power_scenarios.power_30_steps]
)
def test_powersgd_agrees_with_torch(world: Ranks, scenario: Scenario) -> None:
    """Gradients, residuals, P, Q, iteration, statistics and seeds, by step and over 30 steps."""
    ranks = world.run(scenario)
    assert min(len(facts) for facts in ranks) >= 3
    assert _over(ranks) == {}


def test_powersgd_agrees_with_torch_in_the_whole_product(two: Ranks) -> None:
    """All 192 combinations of settings, in float32 and bfloat16."""
    ranks = two.run(power_scenarios.power_product)
    assert {len(facts) for facts in ranks} == {192}
    assert _over(ranks) == {}


def test_powersgd_agrees_with_torch_in_every_mode(two: Ranks) -> None:
    """DDP's modes, mixed dtypes, groups other than the default one, wrappers around it."""
    ranks = two.run(power_scenarios.power_modes)
    assert {len(facts) for facts in ranks} == {9}
    assert _over(ranks) == {}


def test_powersgd_agrees_with_torch_under_no_sync_and_join(world: Ranks) -> None:
    """Likewise accumulated gradients, uneven inputs, and two models with a state each."""
    for facts in world.run(power_scenarios.power_accumulated):
        assert set(facts) == {"no_sync", "join", "join, residuals", "two models"}
        assert max(facts.values()) <= 1, facts


def test_powersgd_survives_zero_gradients(two: Ranks) -> None:
    """Zeros give zeros, and what comes after them is not lost; torch gives NaN, or is dead."""
    for facts in two.run(power_scenarios.power_zeros):
        assert len(facts) == 12
        for case, found in facts.items():
            # An exact low-rank gradient comes back but for rounding: 1000 eps is 1e-4.
            assert found["zero"] == 0, case
            assert found["fresh"] <= 1e-4, (case, found)
            assert found["rest"] <= 1e-4, (case, found)


@pytest.mark.parametrize("mode", ["rebuilt buckets", "static_graph", "find_unused_parameters"])
@pytest.mark.parametrize(
    "hook",
    [
        *("powerSGD", "powerSGD, state_dict", "powerSGD, stacked", "powerSGD, cold"),
        *("batched", "batched, state_dict"),
    ],
)
def test_a_resumed_run_is_the_uninterrupted_one(two: Ranks, hook: str, mode: str) -> None:
    """Saved at step 10 and loaded, step 20 has the same weights and counters to the bit.

    Or it gets there, where the hook's memory depends on DDP's buckets and these are others.
    """
    assert [facts[f"{hook}, {mode}"] for facts in two.run(power_resume_scenarios.resume)] == [
        True,
        True,
    ]


@pytest.mark.parametrize("hook", ["powerSGD_hook", "batched_powerSGD_hook"])
def test_residuals_follow_their_parameters(two: Ranks, hook: str) -> None:
    """A resumed run begins with buckets of another order, and adds no residual to another's."""
    for facts in two.run(power_resume_scenarios.residuals_after_resume):
        assert facts[hook] <= 1


def test_the_batched_hook_agrees_with_its_formulas(world: Ranks) -> None:
    """Ranks, warm start and error feedback, step by step and over 30 steps, and 16-bit types."""
    ranks = world.run(batched_power_scenarios.batched_agrees)
    assert {len(facts) for facts in ranks} == {17 if len(ranks) == 2 else 5}
    assert _over(ranks) == {}
