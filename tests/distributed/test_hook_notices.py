"""Models that are never synchronised, on 2 real gloo ranks."""

from __future__ import annotations

import pytest

from tests.distributed import debug_scenarios
from tests.distributed.harness import Ranks

pytestmark = pytest.mark.slow


def test_a_model_that_another_ddp_synchronises_trains_as_one(two: Ranks) -> None:
    """Its own hook is not called then; where there is no other DDP any more, it is named."""
    for facts in two.run(debug_scenarios.shared):
        assert facts == {
            "one module": [],
            "one layer": [],
            "untraced": [],
            "the other one is gone": [("not_synchronised", "model2")],
        }


def test_a_model_that_is_never_synchronised_is_named(two: Ranks) -> None:
    """After 100 backward passes; those under no_sync() are meant to be so."""
    for facts in two.run(debug_scenarios.silent):
        assert facts == {
            "ddp": [],
            "no_sync": [],
            "registered twice": [],
            "no clock": [],
            "ddp.module": [("not_synchronised", 0, -1)],
            "later ddp.module": [("not_synchronised", 8, -1)],
            "forward only in no_sync": [("not_synchronised", 0, -1)],
        }
