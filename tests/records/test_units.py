"""How numbers are written."""

from __future__ import annotations

import pytest

from hooktrace.records.units import (
    bandwidth,
    exact_ms,
    listed,
    mb,
    megabytes,
    milliseconds,
    ms,
    named_ranks,
    percent,
    size,
)


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


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (milliseconds(420_000), "0.42"),
        (milliseconds(12_340_000), "12.3"),
        (milliseconds(1_240_000_000), "1,240"),
        (ms(420_000), "0.42 ms"),
        (exact_ms(1_234_567), "1.235 ms"),
        (mb(4_200_000), "4.20 MB"),
        (size(999), "999 B"),
        (size(2_100_000), "2.1 MB"),
        (percent(0), "0 %"),
        (percent(0.0123), "1.2 %"),
        (percent(0.5), "50 %"),
        (bandwidth(9e8), "900 MB/s"),
        (bandwidth(4.2e5), "0.42 MB/s"),
        (bandwidth(2.5e9), "2.50 GB/s"),
    ],
)
def test_numbers_have_as_many_digits_as_they_are_good_for(found: str, text: str) -> None:
    assert found == text


@pytest.mark.parametrize("unknown", [None, float("nan")])
def test_what_nobody_knows_is_said(unknown: float | None) -> None:
    """In a sentence by a word, in a table by a dash."""
    assert ms(unknown) == "unknown"
    assert [f(unknown) for f in (milliseconds, megabytes, percent, bandwidth)] == ["-"] * 4


def test_numbers_in_a_row_are_a_range() -> None:
    """And only the first of many are listed."""
    assert listed([3, 1, 2, 7, 9, 10]) == "1-3, 7, 9-10"
    assert listed(range(0, 40, 2), most=3) == "0, 2, 4 and 17 more"


def test_ranks_as_sentences_have_them() -> None:
    """Three in a row and more are a run; of many the first are listed."""
    said = [
        named_ranks([2]),
        named_ranks([3, 0, 1]),
        named_ranks(range(63)),
        named_ranks([0, 1, 2, 5]),
        named_ranks(range(0, 2000, 2)),
    ]
    assert said == [
        *("rank 2", "ranks 0, 1, 3", "ranks 0 to 62", "ranks 0 to 2, 5"),
        "ranks 0, 2, 4, 6, 8, 10, 12, 14, and 992 more",
    ]
