"""Rounds of multi-round hooks beside what else goes on in a job; unit tests: staging."""

from __future__ import annotations

import pytest

from tests.distributed import round_scenarios
from tests.distributed.harness import Ranks

pytestmark = pytest.mark.slow


def test_a_model_with_collectives_in_its_backward(two: Ranks) -> None:
    """Rounds do not pair up with them: gloo would end the process."""
    assert two.run(round_scenarios.collectives_in_backward) == [0.0, 0.0]


def test_two_models_in_two_threads_on_two_groups(two: Ranks) -> None:
    """Neither waits for the other's turn, which on the other rank would come first."""
    assert two.run(round_scenarios.two_threads) == [[True, True]] * 2


def test_two_threads_connect_their_groups_crosswise(two: Ranks) -> None:
    """The wait of one does not hold the store's client, which the other needs."""
    assert two.run(round_scenarios.connected_crosswise) == [[2, 2]] * 2


def test_a_forked_child_is_not_held_up(two: Ranks) -> None:
    """It lets go of no connection, whose threads it does not have."""
    assert two.run(round_scenarios.forked_child) == [0, 0]
