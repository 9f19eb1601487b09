"""The default hooks and those around them have torch's own bits."""

from __future__ import annotations

import pytest

from tests.distributed import (
    exact_scenarios,
)
from tests.distributed.comparison import unequal
from tests.distributed.harness import Ranks

pytestmark = pytest.mark.slow


def test_default_hooks_and_wrappers_are_torch_s_to_the_bit(world: Ranks) -> None:
    """Steps of float32 and of bfloat16 parameters; wrappers around staged and torch's."""
    ranks = world.run(exact_scenarios.default_hooks_agree)
    assert {len(facts) for facts in ranks} == {18}
    assert unequal(ranks) == []
