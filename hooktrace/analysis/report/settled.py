"""Which rows of the ranks' files enter statistics: of the last generation the settled steps.

    Timeline --settled_steps--> StepArrays of the rows that count

Those that are complete, not warm-up, not a shadow, not probed, and without a hang.  Of a sharded
model all generations: one begins with each step that has a collective more, and numbers stay.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...records import HangRecord
from ..timeline import Bools, Ints, RankTrack, Timeline, hangs
from .rank_rows import RankRows
from .step_arrays import StepArrays


def settled_steps(timeline: Timeline, model: str) -> StepArrays | None:
    """Return the arrays of a model's steps that count; ``None`` where there are none."""
    counted = [track.is_of(track.steps, model) & track.steps.counts for track in timeline.tracks]
    ranks = list(zip(timeline.tracks, timeline.clocks, counted, strict=True))
    last = int(max(track.steps.generation[own].max(initial=-1) for track, _, own in ranks))
    hung = [one.record for one in hangs(timeline) if one.record.model == model]
    if last < 0:
        return None
    sharded = any((track.steps.having("sharded") & own).any() for track, _, own in ranks)
    first = 0 if sharded else last
    rows = []
    for track, clock, own in ranks:
        steps = own & (track.steps.generation >= first) & ~_hung(track, hung)
        settled = track.is_of(track.steps, model) & track.steps.settled
        settled &= track.steps.generation >= first
        every = _buckets_of(track, track.steps.step[settled], model, first)
        out = np.isin(track.buckets.step, track.steps.step[settled & ~steps])
        rows.append(RankRows(track, clock, steps, every & ~out, settled, every))
    names = [names for track in timeline.tracks for names in track.models if names[0] == model]
    return StepArrays(timeline, names[-1], last, rows)


def _hung(track: RankTrack, hung: Sequence[HangRecord]) -> Bools:
    """Return which steps of a rank hold a hang; for who came late, its step before may hold it."""
    late = [one.step - 1 for one in hung if track.rank in one.ranks]
    found: Bools = np.isin(track.steps.step, [*late, *(one.step for one in hung)])
    return found


def _buckets_of(track: RankTrack, steps: Ints, model: str, first: int) -> Bools:
    columns = track.buckets
    odd = columns.having("shadow") | columns.having("warmup") | columns.having("exception")
    of_model = track.is_of(columns, model) & (columns.generation >= first)
    found: Bools = of_model & ~odd & np.isin(columns.step, steps)
    return found
