"""Which rows of one rank's columns enter statistics, and what is read of them.

RankTrack, RankClock --settled.py--> RankRows of each rank --> StepArrays
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

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
