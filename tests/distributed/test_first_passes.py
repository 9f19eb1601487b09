"""What is recorded of first backward passes, in which DDP says least of its buckets."""

from __future__ import annotations

import pytest

from tests.distributed import first_pass_scenarios
from tests.distributed.harness import Ranks


@pytest.mark.slow
def test_two_dtypes_are_one_model_in_every_mode(two: Ranks) -> None:
    """Each bucket once a step, all steps whole and timed, and the averages right."""
    for facts in two.run(first_pass_scenarios.two_dtypes):
        assert set(facts) == set(first_pass_scenarios.MODES)
        for mode, found in facts.items():
            assert found["models"] == ["model0"], mode
            assert [step for step, *_ in found["steps"]] == list(range(6)), mode
            assert all(complete for _, _, complete, _ in found["steps"]), mode
            assert found["timed"] == [True] * 6, mode
            assert found["buckets"] == [list(range(count)) for _, count, *_ in found["steps"]], mode
            assert set(found["first"]) == {"float32", "float64"}, mode
            assert found["anomalies"] == [], mode
            assert found["lost"] == {}, mode
            assert found["wrong by"] < 1e-6, mode
        steps = facts["static graph"]["steps"]
        assert [(count, warmup) for _, count, _, warmup in steps[:2]] == [(2, True)] * 2
        assert [warmup for *_, warmup in steps[2:]] == [False] * 4
        assert facts["static graph"]["layouts"] == [(0, 2), (1, steps[-1][1])]


@pytest.mark.slow
def test_powersgd_compresses_models_of_two_dtypes(two: Ranks) -> None:
    """Its state is of one model, and counts passes from the first one that tells its last bucket.

    Where it remembers nothing of buckets it is no matter that they are rebuilt after that.
    """
    for facts in two.run(first_pass_scenarios.compressed):
        assert len(facts) == 12
        for name, found in facts.items():
            assert found["models"] == ["model0"], name
            assert found["timed"] == [True] * 6, name
            assert found["anomalies"] == [], name
            assert found["ratio"] > 1.5, name
        assert {found["iter"] for name, found in facts.items() if "from 2, s" in name} == {5}
