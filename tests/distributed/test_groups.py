"""Hooks over groups other than the default one."""

from __future__ import annotations

from tests.distributed import training_scenarios
from tests.distributed.harness import Ranks


def test_another_process_group(two: Ranks) -> None:
    """A hook whose state is a group reduces over that group."""
    assert (
        two.run(training_scenarios.other_group)
        == [{"both": True, "alone": True, "the groups differ": True}] * 2
    )
