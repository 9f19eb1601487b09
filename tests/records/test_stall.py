"""When a step counts as stalled."""

from __future__ import annotations

import pytest

from hooktrace.records.stall import is_stall

SECOND = 10**9


@pytest.mark.parametrize(
    ("exposed", "usual", "period", "stalled"),
    [
        (2.01, 0.01, 0.2, True),
        (2.00, 0.01, 0.2, False),  # less than two seconds beyond the usual
        (5.00, 4.50, 6.0, False),  # a job that always waits as long
        (5.00, 1.00, 4.1, False),  # less than a step beyond the usual
        (5.10, 1.00, 4.1, True),
    ],
)
def test_two_seconds_and_a_whole_step_beyond_the_usual(
    exposed: float, usual: float, period: float, stalled: bool
) -> None:
    """Both: two seconds are little where steps take ten, and two steps are where they take ms."""
    assert is_stall(*(round(s * SECOND) for s in (exposed, usual, period))) == stalled
