"""Several models in one process."""

from __future__ import annotations

import pytest

from tests.distributed import training_scenarios
from tests.distributed.harness import Ranks


@pytest.mark.slow
def test_models_are_kept_apart_by_name(two: Ranks) -> None:
    """Two models on one traced hook, and two hooks, in one backward pass: four names."""
    for facts in two.run(training_scenarios.two_models):
        assert set(facts) == {"shared", "shared#2", "model0", "model1"}
        counts = set(map(tuple, facts.values()))
        assert len(counts) == 1
        assert len(counts.pop()) == 4
