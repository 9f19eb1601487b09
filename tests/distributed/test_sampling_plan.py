"""What is looked at of models that cannot be probed."""

from __future__ import annotations

import pytest

from tests.distributed import probe_scenarios
from tests.distributed.harness import Ranks
from tests.distributed.test_probes import STEPS
from tests.versions import BROADCASTS_COMPLEX

pytestmark = pytest.mark.slow


def test_gradients_that_cannot_be_probed_are_left_alone(two: Ranks) -> None:
    """Sparse ones have no flat form, complex ones come as pairs; training and records go on."""
    for facts in two.run(probe_scenarios.odd_gradients):
        kinds = ("sparse", "complex") if BROADCASTS_COMPLEX else ("sparse",)
        assert facts == dict.fromkeys(kinds, (True, STEPS, []))
