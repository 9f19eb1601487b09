"""How a summary writes its numbers."""

from __future__ import annotations

import pytest

from hooktrace.summary import megabytes


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0.00"),
        (4_200_000, "4.20"),
        (123_456_789, "123.46"),
        (100_000, "0.10"),
        (99_000, "0.099"),
        (4_736, "0.0047"),
        (1, "0.0000010"),
    ],
)
def test_small_sizes_keep_two_significant_digits(count: int, text: str) -> None:
    """What PowerSGD sends for a bucket is a few kB, and is not 0.00 MB."""
    assert megabytes(count) == text
