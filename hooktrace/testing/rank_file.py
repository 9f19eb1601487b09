"""What stands in a rank's record file, of records that somebody made up."""

from __future__ import annotations

from collections.abc import Iterable

from ..records import CompletedStep
from ..records.base import Record
from ..records.codec import RecordEncoder
from ..records.lines import Losses


def rank_file(
    records: Iterable[Record], steps: Iterable[CompletedStep], *, ended: bool = True
) -> bytes:
    """Return the lines of ``records``, the run first, then each step behind its buckets.

    ``ended``: the file was closed, and nothing was lost.
    """
    encoder = RecordEncoder()
    lines = [encoder.record(record) for record in records]
    for step, buckets in steps:
        lines += [encoder.buckets(buckets), encoder.record(step)]
    return b"".join([*lines, encoder.record(Losses(closed=True)) if ended else b""])
