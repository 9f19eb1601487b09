"""The average without a hook is DDP's, bit for bit, however a model is made and trained."""

from __future__ import annotations

import pytest

from tests.distributed import auto_scenarios
from tests.distributed.harness import Ranks

pytestmark = pytest.mark.slow


def test_without_a_hook_every_bit_is_ddps(four: Ranks) -> None:
    """On three ranks: dtypes, bucket views, unused and sparse gradients, torch's own hooks."""
    for facts in four.run(auto_scenarios.without_a_hook)[:3]:
        assert {name: same for name, same in facts.items() if not same} == {}
        assert set(facts) == set(auto_scenarios.VARIANTS)


def test_ranks_that_run_out_of_data(four: Ranks) -> None:
    """``join`` divides by all ranks, or by those that are left; and steps after it."""
    for facts in four.run(auto_scenarios.joined)[:3]:
        assert len(facts) == 4
        assert {name: same for name, same in facts.items() if not same} == {}


def test_instrument_without_a_hook(four: Ranks) -> None:
    """The public way to the same."""
    for facts in four.run(auto_scenarios.instrumented_without_a_hook)[:3]:
        assert facts.pop("steps") == 4 * 6
        assert facts.pop("left") == 0  # hooks on parameters, which outlive DDP
        assert set(facts.values()) == {True}


def test_alone(two: Ranks) -> None:
    """A group of one rank has nothing to average."""
    assert two.run(auto_scenarios.alone) == [True, True]
