"""Who was ready last, at which bucket.

    Timeline --arrivals--> Arrivals of one model --last_rank--> the rank all others wait for

A bucket's *arrival* is the time at which its hook was called.  Durations cannot show a late rank:
an all-reduce ends on all ranks at once, so the ranks that wait look as slow as the one they wait
for.  Of a bucket's arrivals the last one is blamed only if it is later than any other by more than
the two clocks may be off (``records.late_rank`` says the same of one bucket).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .columns import UNKNOWN, Bools, Ints
from .merge import Timeline

_Numbers = npt.NDArray[Any]


def last_rank(
    ready: _Numbers, uncertainty: _Numbers, known: Bools
) -> tuple[Ints, _Numbers, _Numbers]:
    """Return the row of the last rank, its margin to the next, and what clocks may be off by, ns.

    All inputs have a row a rank and any shape beyond; ``known`` says where both times and clocks
    are.  The row is ``UNKNOWN`` where the clocks do not tell the two apart, or one is missing.
    """
    if len(ready) < 2:
        nothing = np.zeros(ready.shape[1:], np.int64)
        return nothing + UNKNOWN, nothing, nothing
    last = ready.argmax(axis=0)[None]
    lowest = np.iinfo(np.int64).min // 2
    others, latest = ready.copy(), ready + uncertainty
    np.put_along_axis(others, last, lowest, axis=0)
    np.put_along_axis(latest, last, lowest, axis=0)

    def of(values: _Numbers, rank: Ints) -> _Numbers:
        found: _Numbers = np.take_along_axis(values, rank, axis=0)[0]
        return found

    following = others.argmax(axis=0)[None]
    told = known.all(axis=0) & (of(ready, last) - of(uncertainty, last) > latest.max(axis=0))
    margin = of(ready, last) - of(ready, following)
    unsure = of(uncertainty, last) + of(uncertainty, following)
    return np.where(told, last[0], UNKNOWN), margin, unsure


@dataclass(frozen=True, slots=True)
class Arrivals:
    """When each rank had each bucket of one model ready, in rank 0's clock.

    ``ready`` and ``uncertainty`` have shape (ranks, keys); ``ready`` is ``UNKNOWN`` where a rank
    has no such bucket in its file, ``uncertainty`` where its clock is unknown.  ``step`` and
    ``bucket`` (keys,) ascend.  Shadows and buckets of device times that are unresolved count: they
    were called on the host.
    """

    ranks: list[int]
    step: Ints
    bucket: Ints
    ready: Ints
    uncertainty: Ints

    def lag(self) -> Ints:
        """Return ns after the first rank that is known, (ranks, keys); ``UNKNOWN`` stays."""
        known = self.ready != UNKNOWN
        first = np.where(known, self.ready, np.iinfo(np.int64).max).min(axis=0, initial=2**62)
        found: Ints = np.where(known, self.ready - first, UNKNOWN)
        return found

    def among(self, rows: Sequence[int], key: int) -> Arrivals:
        """Return the arrivals of some ranks, by row, at one key."""
        one = slice(key, key + 1)
        ready, uncertainty = self.ready[[*rows], one], self.uncertainty[[*rows], one]
        ranks = [self.ranks[row] for row in rows]
        return Arrivals(ranks, self.step[one], self.bucket[one], ready, uncertainty)

    def last_at(self, key: int) -> tuple[int, int]:
        """Return the row of the last rank at a key and its margin to the next, ns."""
        ready, unsure = self.ready[:, key], self.uncertainty[:, key]
        last, margin, _ = last_rank(ready, unsure, (ready != UNKNOWN) & (unsure != UNKNOWN))
        return int(last), int(margin)


def arrivals(timeline: Timeline, model: str) -> Arrivals:
    """Return when each rank had each bucket of a model ready."""
    keys, ready, uncertainty = [], [], []
    for track, clock in zip(timeline.tracks, timeline.clocks, strict=True):
        rows = track.is_of(track.buckets, model)
        host = track.buckets.called[rows]
        keys.append(bucket_keys(track.buckets.step[rows], track.buckets.bucket[rows]))
        ready.append(clock.common(host))
        uncertainty.append(clock.uncertainty(host))
    every = _all_of(keys)
    shape = (len(timeline.tracks), len(every))
    all_ready, all_uncertainty = np.full(shape, UNKNOWN), np.full(shape, UNKNOWN)
    for i, own in enumerate(keys):
        places = np.searchsorted(every, own)
        all_ready[i, places], all_uncertainty[i, places] = ready[i], uncertainty[i]
    return Arrivals(
        ranks=[track.rank for track in timeline.tracks],
        step=every >> _BITS,
        bucket=every & ((1 << _BITS) - 1),
        ready=all_ready,
        uncertainty=all_uncertainty,
    )


def _all_of(keys: list[Ints]) -> Ints:
    """Return the keys of all ranks, ascending; as a rule each rank has the same."""
    first = keys[0] if keys else np.zeros(0, np.int64)
    if (np.diff(first) > 0).all() and all(np.array_equal(first, own) for own in keys):
        return first
    found: Ints = np.unique(np.concatenate(keys))
    return found


def bucket_keys(step: Ints, bucket: Ints) -> Ints:
    """Return a number for each bucket of each step; they ascend by step, then by bucket."""
    found: Ints = step.astype(np.int64) << _BITS | bucket
    return found


_BITS = 20
