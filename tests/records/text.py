"""Records as the text of a file, and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hooktrace.records import BucketRecord, RunInfo, StepRecord
from hooktrace.records.content import RankRecords
from hooktrace.testing.synthetic import rank_file
from tests.exporters import records_sample as sample


def encode(
    run: RunInfo, steps: Iterable[tuple[StepRecord, tuple[BucketRecord, ...]]], *before: Any
) -> bytes:
    """Return the lines of a file that was not ended; ``before``: records before the steps."""
    return rank_file([run, *before], steps, ended=False)


def decode(data: bytes) -> RankRecords:
    return sample.decoded(data.splitlines(keepends=True))
