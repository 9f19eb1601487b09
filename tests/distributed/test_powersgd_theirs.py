"""hooktrace's PowerSGD takes torch's state."""

from __future__ import annotations

import pytest

from tests.distributed import auto_scenarios
from tests.distributed.harness import Ranks

pytestmark = pytest.mark.slow


def test_powersgd_takes_torchs_state(two: Ranks) -> None:
    """It counts on, and is saved with what the hook remembers."""
    for facts in two.run(auto_scenarios.theirs_in_ours):
        assert facts == {"same": True, "iter": (6, 6)}
