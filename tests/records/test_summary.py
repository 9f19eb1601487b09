"""How a summary writes its numbers."""

from __future__ import annotations

import pytest

from hooktrace.records import Transfer
from hooktrace.records.summary import megabytes, summarize
from tests.exporters.records_sample import make_step, opaque


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


def test_bytes_are_of_the_last_step_that_knows_them() -> None:
    """Of an opaque hook few do."""
    sent = (Transfer(collective="all_reduce", dtype="float32", wire_bytes=700),)
    (summary,) = summarize(
        [opaque(make_step(1), sent=sent), opaque(make_step(2), sent=None)],
    )
    assert summary.wire_bytes == 700
    assert [b.wire_bytes for b in summary.buckets] == [700, None]
    assert str(summary).splitlines()[2].startswith("  bucket 1: 0.0040 MB, ? on the wire")
