"""Differences and ratios of variants, of steps whose costs are known."""

from __future__ import annotations

import pytest

from hooktrace.commands.bench.per_bucket import BUCKETS, Cost, added_us, ratios

COSTS = {
    "plain": [Cost(400_000, 100_000, 600_000), Cost(800_000, 100_000, 600_000)],
    "traced": [Cost(600_000, 300_000, 1_800_000), Cost(1_000_000, 140_000, 600_000)],
}


@pytest.mark.parametrize(
    ("kind", "us"), [("wall", [5.0, 5.0]), ("own", [5.0, 1.0]), ("process", [30.0, 0.0])]
)
def test_what_is_added_is_that_of_a_bucket_in_the_same_round(kind: str, us: list[float]) -> None:
    """A step has 40 buckets; a slow round is slow for both."""
    assert BUCKETS == 40
    assert added_us(COSTS, "traced", "plain", kind) == us


def test_ratios_are_those_of_a_round() -> None:
    """Not of the medians."""
    assert ratios(COSTS, "traced", "plain", "wall") == [1.5, 1.25]
