"""What buckets waited in their collectives for the last rank, of the steps that count.

    Timeline --wire_waits--> WireWaits --of the rows that count--> Waited: (R, S, B), and by stage

What a wait is, ``timeline/waits.py`` says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..timeline import UNKNOWN, Ints, Timeline, WireWaits, wire_waits

Floats = npt.NDArray[np.float64]
Dense = Callable[[Ints], Floats]
"""Makes an array (R, S, B) of a value a bucket, one rank after another; ``UNKNOWN`` becomes NaN."""

_NOT_TOGETHER = "no collective had all ranks in it at once"


@dataclass(frozen=True, slots=True)
class Waited:
    """``ns``: what each bucket waited, (R, S, B), NaN where it is not known.

    ``whom``: for which rank, as a place among them, the one that waited longest did, (S, B); NaN
    where nobody waited, and where clocks do not tell.  ``why_unknown``: a clause, where nothing is
    known at all.  ``by_clock``: whether all of it rests on clocks, or on what stages take.
    """

    ns: Floats
    whom: Floats
    why_unknown: str | None
    by_clock: bool
    _stages: WireWaits | None
    """Where a bucket has several wire stages; of one alone ``ns`` says it."""

    def of_stages(self, i: int, rows: Ints, steps: Ints, buckets: Ints) -> Floats:
        """Return how long wire stages of the ``i``-th rank waited; NaN where that is not known.

        ``rows``: the stages' among their rank's; ``steps``, ``buckets``: their buckets' places.
        """
        if self._stages is None:
            found: Floats = self.ns[i, steps, buckets]
            return found
        known = self._stages.ns[i] != UNKNOWN
        there, ns = self._stages.rows[i][known], self._stages.ns[i][known]
        own = np.isin(rows, there)
        found = np.full(len(rows), np.nan)
        found[own] = ns[np.searchsorted(there, rows[own])]
        return found

    def for_ranks(self, b: int) -> tuple[Floats, int]:
        """Return the share of steps in which a bucket waits for each rank, and their count."""
        whom = self.whom[:, b]
        steps = int(np.count_nonzero(~np.isnan(self.ns[..., b]).all(axis=0)))
        places = whom[~np.isnan(whom)].astype(np.int64)
        return np.bincount(places, minlength=len(self.ns)) / max(1, steps), steps


class _OfRank(NamedTuple):
    """What each of a rank's buckets waited, and for whom; rounds that a bucket has at most."""

    ns: Ints
    whom: Ints
    rounds: int


def waited(
    timeline: Timeline, model: str, counted: Sequence[npt.NDArray[np.bool_]], dense: Dense
) -> Waited:
    """Return the waits of a model; ``counted``: which of the buckets of each rank to take."""
    found = wire_waits(timeline, model)
    ranks = [_of_rank(found, timeline, i) for i in range(len(timeline.tracks))]
    ns = dense(np.concatenate([one.ns[rows] for one, rows in zip(ranks, counted, strict=True)]))
    last = dense(np.concatenate([one.whom[rows] for one, rows in zip(ranks, counted, strict=True)]))
    longest = np.nan_to_num(ns, nan=-1.0).argmax(axis=0)[None]
    whom = np.take_along_axis(last, longest, axis=0)[0]
    why = found.why_unknown
    if why is None and np.isnan(ns).all():
        why = _NOT_TOGETHER
    several = any(one.rounds > 1 for one in ranks)
    return Waited(ns, whom, why, found.by_clock, found if several else None)


def _of_rank(found: WireWaits, timeline: Timeline, i: int) -> _OfRank:
    known = found.ns[i] != UNKNOWN
    ns, last = found.ns[i][known], found.last[i][known]
    first = timeline.tracks[i].buckets.first_stage
    of = np.searchsorted(first, found.rows[i][known], side="right") - 1
    rounds = np.bincount(of, minlength=len(first))
    sums = np.bincount(of, weights=ns, minlength=len(first)).astype(np.int64)
    most = int(rounds.max(initial=0))
    if most > 1:
        order = np.argsort(ns, kind="stable")
        of, ns, last = of[order], ns[order], last[order]
    whom = np.full(len(first), UNKNOWN)
    whom[of] = np.where(ns > 0, last, UNKNOWN)  # of several the longest, which comes last
    return _OfRank(np.where(rounds > 0, sums, UNKNOWN), whom, most)
