"""Who is late, as a skew's record says it."""

from __future__ import annotations

import pytest

from hooktrace.records import SkewRecord, late_rank


@pytest.mark.parametrize(
    ("arrivals", "uncertainty", "late"),
    [
        ((0, 5, 20), 14, 2),
        ((0, 5, 20), 15, None),
        ((20, 0), 3, 0),
        ((0, 5, 20), None, None),
        ((0,), 0, None),
        ((), 0, None),
    ],
)
def test_nobody_is_blamed_within_the_uncertainty(
    arrivals: tuple[int, ...], uncertainty: int | None, late: int | None
) -> None:
    """It is of the last rank's distance to the next."""
    assert late_rank(arrivals, uncertainty) == late


def test_a_skew_knows_its_own_delay_and_the_late_rank() -> None:
    skew = SkewRecord(
        model="net", hook="h", rebuild=1, step=3, bucket=2, time_ns=5, rank=6,
        ranks=(4, 6, 9), arrivals_ns=(0, 7, 90), uncertainty_ns=10,
    )  # fmt: skip
    assert (skew.arrival_delay_ns, skew.late_rank) == (7, 9)
