"""Which probes of a model take place, as its ranks agree on them."""

from __future__ import annotations

import pytest

from tests.distributed import probe_scenarios
from tests.distributed.harness import Ranks
from tests.distributed.test_probes import FIRST, STEPS

pytestmark = pytest.mark.slow


def test_ranks_agree_on_what_is_probed(two: Ranks) -> None:
    """Two models and no_sync: the same buckets on both ranks; nothing where they cannot agree."""
    first, second = two.run(probe_scenarios.schedules)
    assert first == second
    assert [step for step, _ in first["model0"]] == [12, 15, 18, 21, 24, 27]
    assert [step for step, _ in first["model1"]] == [12, 15, 18, 21, 24, 27]
    assert first["one rank"] == []
    assert first["different wishes"] == []


def test_a_model_on_some_ranks_is_compared_on_these(four: Ranks) -> None:
    """The group is ``instrument``'s; where nobody says which it is, it is not guessed."""
    for facts in four.run(probe_scenarios.subgroups):
        errors, anomalies = facts["instrument"]
        assert (errors, anomalies) == ([0.0] * (STEPS - FIRST), [])
        assert facts["trace"] == ([], [])


def test_ranks_that_drifted_begin_after_the_last_one(two: Ranks) -> None:
    """All learn the largest step at which one came to the meeting."""
    assert two.run(probe_scenarios.drifted) == [17, 17]
