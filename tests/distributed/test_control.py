"""Commands over the channel reach all ranks, from the same step on, and harm no training."""

from __future__ import annotations

from typing import Any

import pytest

from tests.distributed.control_scenarios import commands
from tests.distributed.harness import Ranks

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ranks(two: Ranks) -> list[dict[str, Any]]:
    """What the two ranks saw."""
    return two.run(commands)


def test_all_ranks_answer_a_status(ranks: list[dict[str, Any]]) -> None:
    """To a call and to a terminal, which reads where the hub is from a file of the owner's."""
    outcome = ranks[0]["status"]
    assert {r: done.steps["net"] for r, done in outcome.ranks.items()} == {0: 39, 1: 39}
    assert outcome.silent == []
    code, told, errors = ranks[0]["terminal"]
    assert (code, errors) == (0, "")
    assert sorted(told["ranks"]) == ["0", "1"]
    assert [one["mode"] for one in ranks] == [0o600, 0o600]
    assert not ranks[0]["left"]


def test_the_same_steps_are_kept_in_detail(ranks: list[dict[str, Any]]) -> None:
    """Five in a row, soon after the 40 steps before, beside probed ones."""
    kept = [one["in detail"] for one in ranks]
    five = [
        steps[:5]
        for steps in (kept[0][i:] for i in range(len(kept[0])))
        if steps[:5] == [*range(steps[0], steps[0] + 5)] and 40 <= steps[0] <= 60
    ]
    assert five
    assert kept[0] == kept[1]


def test_a_burst_is_probed_on_the_same_steps(ranks: list[dict[str, Any]]) -> None:
    """Four in a row, once the ranks have met; then a tenth of the steps again."""
    steps = ranks[0]["probed"]
    runs = [steps[i : i + 4] for i in range(len(steps))]
    (burst,) = [run for run in runs if run == [*range(run[0], run[0] + 4)]]
    assert set(burst) < set(ranks[0]["bursts"])
    more = [step for step in steps if step > burst[-1]]
    assert more == [*range(more[0], more[-1] + 1, 10)]
    assert len(more) >= 5
    assert ranks[1]["probed"] == ranks[0]["probed"]


def test_nothing_is_recorded_while_paused(ranks: list[dict[str, Any]]) -> None:
    """Steps are counted all the same, and probes begin again together."""
    for one in ranks:
        assert one["paused"] == one["before"]
        assert one["after"] == one["before"] + 120
        again = [step for step in one["probed after"] if step > one["before"] + 30]
        assert len(again) >= 3
    assert ranks[0]["probed after"] == ranks[1]["probed after"]


def test_stacks_are_those_of_the_rank(ranks: list[dict[str, Any]]) -> None:
    """It is somewhere in the scenario."""
    outcome = ranks[0]["stacks"]
    assert "control_scenarios.py" in outcome.ranks[1].text
    assert outcome.ranks[0].text == ""


def test_nothing_is_lost(ranks: list[dict[str, Any]]) -> None:
    """Not a probe, and not a record."""
    assert [one["losses"] for one in ranks] == [{}, {}]
    assert {done.text for done in ranks[0]["flush"].ranks.values()} == {"flushed"}
