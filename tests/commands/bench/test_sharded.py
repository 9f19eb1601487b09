"""What a collective of a sharded model costs more, of steps whose costs are known."""

from __future__ import annotations

from hooktrace.commands.bench.sharded import COLLECTIVES, UNITS, added_us


def test_what_is_added_is_that_of_a_collective_in_the_same_round() -> None:
    """A step has 120 of them; a slow round is slow for both."""
    assert (UNITS, COLLECTIVES) == (40, 120)
    assert added_us([1_200_000, 2_400_000], [600_000, 2_280_000]) == [5.0, 1.0]
