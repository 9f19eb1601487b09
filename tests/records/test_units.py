"""How numbers are written."""

from __future__ import annotations

import pytest

from hooktrace.records import units
from hooktrace.records.units import listed, megabytes, milliseconds, named_ranks, percent

NAN = float("nan")


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (megabytes(0), "0.00"),
        # What PowerSGD sends for a bucket is a few kB, and is not 0.00 MB.
        (megabytes(4_736), "0.0047"),
        (megabytes(1), "0.0000010"),
        (milliseconds(1_240_000_000), "1,240"),
        (units.ms(420_000), "0.42 ms"),
        (units.exact_ms(1_234_567), "1.235 ms"),
        (units.time_text(999), "999 ns"),
        (units.time_text(4_200), "4.2 µs"),
        (units.time_text(99_000), "99 µs"),
        (units.time_text(-420_000), "-420 µs"),
        (units.size(2_100_000), "2.1 MB"),
        (percent(0), "0 %"),
        (percent(0.0123), "1.2 %"),
        (units.bandwidth(9e8), "900 MB/s"),
        (units.bandwidth(4.2e5), "0.42 MB/s"),
        # Whole numbers in a row are a range, and only the first of many are listed.
        (listed(range(0, 40, 2), most=3), "0, 2, 4 and 17 more"),
        (named_ranks([3, 0, 1]), "ranks 0, 1, 3"),
        (named_ranks([0, 1, 2, 5]), "ranks 0 to 2, 5"),
        (named_ranks(range(0, 2000, 2)), "ranks 0, 2, 4, 6, 8, 10, 12, 14, and 992 more"),
    ],
)
def test_numbers_have_as_many_digits_as_they_are_good_for(found: str, text: str) -> None:
    assert found == text


@pytest.mark.parametrize("unknown", [None, NAN])
def test_what_nobody_knows_is_said(unknown: float | None) -> None:
    """In a sentence by a word, in a table by a dash."""
    assert units.ms(unknown) == "unknown"
    in_tables = (milliseconds, megabytes, percent, units.bandwidth)
    assert [written(unknown) for written in in_tables] == ["-"] * 4
