"""A rank's buckets and steps where they lie in rank 0's clock.

RankTrack, RankClock --placed--> Placed: when buckets were ready and done, and steps began and ended

The host does not see when the last bucket of a step on a device was ready, or done: its buckets
tell.  They lie where ``read.py`` has put them, since no clock ties host and device.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .clock import RankClock
from .columns import UNKNOWN, Ints, RankTrack
from .run import Run, once


@dataclass(frozen=True, slots=True)
class Placed:
    """Times of one rank, ns of rank 0's host clock.

    ``ready``, ``done``: by row in ``buckets``; of ``untimed`` ones the host's.  ``first_ready``,
    ``last_ready``, ``ended``: by row in ``steps``.
    """

    ready: Ints
    done: Ints
    first_ready: Ints
    last_ready: Ints
    ended: Ints


@once
def placed(run: Run) -> list[Placed]:
    """Return the times of each rank."""
    return [_placed(track, clock) for track, clock in run.ranks]


def _placed(track: RankTrack, clock: RankClock) -> Placed:
    buckets, steps = track.buckets, track.steps
    ready = clock.common(buckets.ready)
    done = ready + np.maximum(buckets.done_after - buckets.ready_after, 0)
    first = clock.common(steps.first_ready)
    last = first + (steps.last_ready - steps.first_ready)
    ended = np.maximum(first + (steps.done - steps.first_ready), first)
    row = np.flatnonzero(buckets.having("device"))
    of = steps.rows_of(buckets.model[row], buckets.step[row])
    row, of = row[of != UNKNOWN], of[of != UNKNOWN]
    for found, moments in ((last, ready), (ended, done)):
        found[of] = first[of]
        np.maximum.at(found, of, moments[row])
    return Placed(ready, done, first, last, ended)
