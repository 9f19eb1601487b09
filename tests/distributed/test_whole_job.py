"""The whole job on two real ranks: its record at rank 0, and ``hooktrace top`` in a terminal."""

from __future__ import annotations

from typing import Any

import pytest

from tests.distributed.harness import Ranks
from tests.distributed.whole_job_scenarios import LATE, looked_at

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def seen(two: Ranks) -> dict[str, Any]:
    """What rank 0 saw."""
    facts: list[dict[str, Any]] = two.run(looked_at)
    assert [one["lost"] for one in facts] == [{}, {}]
    return facts[0]


def test_rank_0_has_records_of_all_ranks_that_name_the_late_one(seen: dict[str, Any]) -> None:
    """In most steps: a machine may hold up the other one once."""
    assert seen["last"].count(LATE) > len(seen["last"]) / 2
    assert (2, 2) in seen["ranks"]


def test_top_shows_the_job_and_does_what_keys_say(seen: dict[str, Any]) -> None:
    """Stacks and back, detail on all ranks, and the terminal as it was before."""
    wanted = ("told", "keys", "stacks", "back", "detail")
    assert {name: seen[name] for name in wanted} == dict.fromkeys(wanted, True), seen["shown"]
    assert seen["code"] == 0
