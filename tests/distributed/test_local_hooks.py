"""Post-local SGD and gossip on 4 real gloo ranks."""

from __future__ import annotations

import pytest

from tests.distributed import local_scenarios
from tests.distributed.harness import Ranks
from tests.distributed.local_scenarios import START, STEPS

pytestmark = pytest.mark.slow


def test_post_local_sgd_has_torch_s_bits(four: Ranks) -> None:
    """Gradients and parameters of 30 steps with averaging, local SGD from the middle on."""
    for facts in four.run(local_scenarios.local_parity):
        assert {name: case["same"] for name, case in facts.items()} == dict.fromkeys(facts, True)
        assert [case["iter"] for case in facts.values()] == [
            (START, START), (START, START), (START, START), (0, 0), (STEPS, STEPS),
        ]  # fmt: skip
        assert {name: case["silent"] for name, case in facts.items()} == {
            "subgroup": [],
            "given groups": [],
            "nothing after": list(range(START, STEPS)),
            "local at once": [],
            "never local": [],
        }
        assert all(case["buckets"] >= 6 for case in facts.values())


def test_post_local_sgd_resumes(four: Ranks) -> None:
    """From a checkpoint on each rank, before and after the start, to the bit."""
    assert four.run(local_scenarios.local_resume) == [{"step 5": True, "step 16": True}] * 4


def test_a_machine_s_subgroup_is_made_on_a_cpu(four: Ranks) -> None:
    """By the first backward pass, and again after unpickling; not for a part of the job."""
    for rank, facts in enumerate(four.run(local_scenarios.local_machine)):
        refused = facts.pop("part of the job")
        assert facts == {
            "made in the first pass": True,
            "ranks": 4,
            "same as all ranks": True,
            "made again": True,
        }
        if rank < 3:
            assert "all 4 ranks would have to take part, and its process_group has 3" in refused


def test_without_a_launcher_a_machine_is_a_host_name(four: Ranks) -> None:
    """Which need not be of consecutive ranks."""
    assert four.run(local_scenarios.local_hosts) == [[0, 2], [1, 3], [0, 2], [1, 3]]


GOSSIP = ["four", "fixed", "view", "no_sync", "float64", "float16", "bfloat16", "three", "one"]


@pytest.mark.parametrize("case", GOSSIP)
def test_gossip_averages_with_one_partner(four: Ranks, case: str) -> None:
    """(own + partner) / 2 to the bit in all buckets of all steps; one payload a rank."""
    for facts in four.run(local_scenarios.gossip_exact):
        if facts[case] is None:
            assert case == "three"
            continue
        found = facts[case]
        assert found["exact"] == [True] * 10
        assert found["steps"] == 10
        assert found["buckets"] >= 6
        if case == "one":
            assert found["kinds"] == set()
            continue
        assert found["kinds"] == {"send_recv"}
        assert [wire for wire, _ in found["bytes"]] == [size for _, size in found["bytes"]]


@pytest.mark.parametrize("case", ["four", "fixed", "view", "no_sync", "float64", "three"])
def test_the_mean_of_gossip_is_the_mean_of_all(four: Ranks, case: str) -> None:
    """Every gradient counts twice by a half, so nothing is lost on the whole."""
    for facts in four.run(local_scenarios.gossip_exact):
        if facts[case] is not None:
            assert max(facts[case]["mean"]) < (1e-12 if case == "float64" else 1e-3)


def test_gossip_partners_by_hand(four: Ranks) -> None:
    """Distances 1 and 2 in turn; with rotation other partners come up as well."""
    for rank, facts in enumerate(four.run(local_scenarios.gossip_exact)):
        assert facts["fixed"]["from"] == [(rank - (1, 2)[step % 2]) % 4 for step in range(10)]
        assert facts["four"]["from"][:2] == [(rank - 1) % 4, (rank - 2) % 4]
        assert set(facts["four"]["from"]) == set(range(4)) - {rank}


def test_gossiping_replicas_differ(four: Ranks) -> None:
    """From the first step on, as the docstring says."""
    assert [facts["four"]["apart"] for facts in four.run(local_scenarios.gossip_exact)][1:] == [
        [True] * 10
    ] * 3


def test_gossip_resumes(four: Ranks) -> None:
    """From a checkpoint on each rank in the middle of a round, to the bit."""
    assert four.run(local_scenarios.gossip_resume) == [{"step": 7, "same": True}] * 4


def test_gossip_in_float16_does_not_overflow(four: Ranks) -> None:
    """The halves are added, not the gradients."""
    assert four.run(local_scenarios.gossip_overflow) == [True] * 4
