"""Who was ready last, at which bucket, and how often.

    Run --delays--> Delays of each rank's calls of one model
    StepArrays --last_of--> Last: the rank that all others wait for, in each step and bucket

Ranks are compared by when a bucket's hook was called.  Durations cannot show a late rank: an
all-reduce ends on all ranks at once, so the ranks that wait look as slow as the one they wait for.
Of a bucket's calls the last one is blamed only if it is later than any other by more than the two
clocks may be off (``records.late_rank`` says the same of one bucket).

One rank is always last, and where ranks take turns each is in its share of the steps: ``often``
says from when on that is worth a name.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from .clock import last_rank
from .columns import UNKNOWN, Bools, Ints, bucket_keys
from .dense import Floats, StepArrays
from .groups import process_groups
from .run import Run, once


class Delays(NamedTuple):
    """By how many ns a rank's calls came after the first rank's, by row in its ``buckets``.

    ``unsure``: by how much that may be off.  Both are ``UNKNOWN`` in rows of other models, on a
    rank whose clock nobody measured, and where no other rank's call is known.
    """

    ns: Ints
    unsure: Ints


@once
def delays(run: Run, model: str) -> list[Delays]:
    """Return the delays of each rank's calls of a model."""
    columns = []
    for track, clock, group in zip(run.tracks, run.clocks, process_groups(run).of, strict=True):
        is_known = track.is_of(track.buckets, model) & (group != UNKNOWN) & clock.is_known
        rows, host = np.flatnonzero(is_known), track.buckets.called[is_known]
        step, bucket = track.buckets.step[rows], track.buckets.bucket[rows]
        times = clock.common(host), clock.uncertainty(host)
        columns.append((rows, bucket_keys(step, bucket), group[rows], *times))
    if not columns:
        return []
    _, key, group, called, unsure = map(np.concatenate, zip(*columns, strict=True))
    order = np.lexsort((called, group, key))
    differs = (np.diff(key[order]) != 0) | (np.diff(group[order]) != 0)
    opens = np.flatnonzero(np.append(np.ones(min(len(order), 1), bool), differs))
    count = np.diff(opens, append=len(order))
    first, several = np.repeat(order[opens], count), np.repeat(count > 1, count)
    delay, off = np.full(len(order), UNKNOWN), np.full(len(order), UNKNOWN)
    delay[order] = np.where(several, called[order] - called[first], UNKNOWN)
    off[order] = np.where(several, np.where(order == first, 0, unsure[order] + unsure[first]), -1)
    ends = np.cumsum([len(rows) for rows, *_ in columns])
    found = []
    for track, (rows, *_), end in zip(run.tracks, columns, ends.tolist(), strict=True):
        own = slice(end - len(rows), end)
        made = Delays(*(np.full(len(track.buckets), UNKNOWN) for _ in range(2)))
        made.ns[rows], made.unsure[rows] = delay[own], off[own]
        found.append(made)
    return found


OFTEN = 0.25
"""Share of steps from which on a rank that is last is worth a name, ..."""

SIGMAS = 3.0
"""... if it is by as many standard deviations above one of the ranks taking turns at random."""

SURELY = 0.95
"""Of the steps: in which one that waits for a rank has its result after that rank is ready."""


def often(ranks: int, steps: int) -> float:
    """Return the share of steps from which on a rank comes last often, and not by chance.

    A step is a draw of 1 / ``ranks``, so ``steps`` draws spread by sqrt(p (1 - p) / steps).
    """
    chance = 1 / max(1, ranks)
    return max(OFTEN, chance + SIGMAS * math.sqrt(chance * (1 - chance) / max(1, steps)))


def waiting_ranks(done: Floats, ready: Floats, i: int) -> list[int]:
    """Return who has a result only after the i-th rank has it ready, ``SURELY`` always, or may.

    ``done``, ``ready``: (ranks, steps).  Of a hook that sends nothing, or to some ranks only, the
    others do not wait.
    """
    known = np.maximum(np.count_nonzero(np.isfinite(done) & np.isfinite(ready[i]), axis=1), 1)
    before = np.count_nonzero(done < ready[i], axis=1) / known
    return [j for j in np.flatnonzero(before <= 1 - SURELY).tolist() if j != i]


class Last(NamedTuple):
    """Of each step and bucket the rank for which all others wait, (S, B); ranks are places.

    ``rank``: ``UNKNOWN`` where the clocks do not tell it.  ``margin``: by how much it is later than
    the next one, ns.  ``unsure``: what clocks may be off by.  ``often``: in how many steps a rank
    is last more often than by chance; ``seen``: in how many all have the bucket and a clock, 1 at
    least; (B,).
    """

    rank: Ints
    margin: Floats
    unsure: Floats
    often: Floats
    seen: Ints

    def often_by(self, i: int) -> Bools:
        """Return at which buckets the i-th rank is last often, (B,)."""
        found: Bools = (self.rank == i).sum(axis=0) / self.seen >= self.often
        return found


def last_of(arrays: StepArrays) -> Last:
    """Return who is last."""
    called, unsure = arrays.called, arrays.uncertainty
    known = ~np.isnan(called) & ~np.isnan(unsure)
    seen = np.maximum(known.all(axis=0).sum(axis=0), 1)
    least = [often(len(arrays.ranks), steps) for steps in seen.tolist()]
    return Last(*last_rank(called, unsure, known), np.array(least), seen)


def is_order_known(arrays: StepArrays) -> bool:
    """Return whether the clocks of all ranks are known at once, in any step."""
    known = ~np.isnan(arrays.detailed.uncertainty)
    return len(known) > 1 and bool(known.all(axis=0).any())
