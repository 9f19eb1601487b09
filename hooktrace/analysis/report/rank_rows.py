"""Which rows of one rank's columns enter statistics, and what is read of them.

RankTrack, RankClock --settled.py--> RankRows of each rank --> StepArrays
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ...records import ErrorRecord
from ..timeline import STAGE_NAMES, Bools, Ints, RankClock, RankTrack


class RankRows(NamedTuple):
    """The rows of one rank that count; ``all_...``: also of steps that were probed, or hung."""

    track: RankTrack
    clock: RankClock
    steps: Bools
    buckets: Bools
    all_steps: Bools
    all_buckets: Bools

    @property
    def called(self) -> Ints:
        """When the hook was called for each bucket, by the rank's own clock."""
        return self.track.buckets.called[self.buckets]

    @property
    def stage_counts(self) -> Ints:
        """How many buckets go through each stage, in the order of ``STAGE_NAMES``."""
        names = self.track.stages.name[np.repeat(self.buckets, self.track.buckets.stages)]
        return np.bincount(names, minlength=len(STAGE_NAMES))

    def sent(self, bucket: int | None) -> Ints:
        """Return the wire bytes of all steps, or of a bucket in them, probed ones too."""
        if bucket is None:
            return self.track.steps.wire_bytes[self.all_steps]
        own: Bools = self.all_buckets & (self.track.buckets.bucket == bucket)
        return self.track.buckets.wire_bytes[own]

    def errors(self) -> Iterator[tuple[int, int, ErrorRecord]]:
        """Yield what each probe found, with its step and bucket."""
        for row, error in sorted(self.track.errors.items()):
            if self.all_buckets[row]:
                columns = self.track.buckets
                yield int(columns.step[row]), int(columns.bucket[row]), error
