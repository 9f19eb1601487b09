"""How a summary writes its numbers."""

from __future__ import annotations

from hooktrace.records import Transfer
from hooktrace.records.summary import summarize
from tests.exporters.records_sample import make_step, opaque


def test_bytes_are_of_the_last_step_that_knows_them() -> None:
    """Of an opaque hook few do."""
    sent = (Transfer(collective="all_reduce", dtype="float32", wire_bytes=700),)
    (summary,) = summarize(
        [opaque(make_step(1), sent=sent), opaque(make_step(2), sent=None)],
    )
    assert summary.wire_bytes == 700
    assert [b.wire_bytes for b in summary.buckets] == [700, None]
    assert str(summary).splitlines()[2].startswith("  bucket 1: 0.0040 MB, ? on the wire")
