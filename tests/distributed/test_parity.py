"""No hook hangs, whatever the order in which ranks come to its collectives."""

from __future__ import annotations

import pytest

from tests.distributed import parity_scenarios
from tests.distributed.harness import Ranks


@pytest.mark.slow
def test_no_hook_hangs_or_aborts(four: Ranks) -> None:
    """50 steps with random delays: finite, and the same bits on all replicas."""
    ranks = four.run(parity_scenarios.stress)
    assert len(ranks[0]) == 8
    for name in ranks[0]:
        assert all(facts[name][0] for facts in ranks), name
        different = len({facts[name][1] for facts in ranks})
        assert different == (4 if name == "nothing" else 1), name
