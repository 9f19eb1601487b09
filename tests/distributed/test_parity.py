"""The comparisons notice what is wrong, and no hook hangs."""

from __future__ import annotations

import pytest

from tests.distributed import (
    mutants,
    parity_scenarios,
)
from tests.distributed.harness import Ranks

pytestmark = pytest.mark.slow


def test_comparisons_notice_mutants(two: Ranks) -> None:
    """Each error is ten times over the tolerance on every rank; without one nothing is."""
    for facts in two.run(parity_scenarios.mutants_noticed):
        correct = {name: value for name, value in facts.items() if name.startswith("no mutant")}
        assert max(correct.values()) <= 1
        assert {name: v for name, v in facts.items() if v < 10 and name not in correct} == {}
        assert set(mutants.MUTANTS) | set(correct) == set(facts)


def test_no_hook_hangs_or_aborts(four: Ranks) -> None:
    """100 steps with random delays: finite, and the same bits on all replicas."""
    ranks = four.run(parity_scenarios.stress)
    assert len(ranks[0]) == 13
    for name in ranks[0]:
        assert all(facts[name][0] for facts in ranks), name
        different = len({facts[name][1] for facts in ranks})
        assert different == (4 if name == "nothing" else 1), name
