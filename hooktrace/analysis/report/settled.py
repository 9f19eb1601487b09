"""Which rows of the ranks' files enter statistics: of the last generation the settled steps.

    Timeline --settled_steps--> StepArrays of the rows that count

Those that are complete, not warm-up, not a shadow, not probed, and without a hang.  Of a sharded
model all generations: one begins with each step that has a collective more, and numbers stay.
"""

from __future__ import annotations

import numpy as np

from ..timeline import Bools, Ints, RankTrack, Timeline, counted_rows, hangs
from .rank_rows import RankRows
from .step_arrays import StepArrays


def settled_steps(timeline: Timeline, model: str) -> StepArrays | None:
    """Return the arrays of a model's steps that count; ``None`` where there are none."""
    counted = [track.is_of(track.steps, model) & track.steps.counts for track in timeline.tracks]
    ranks = list(zip(timeline.tracks, timeline.clocks, counted, strict=True))
    last = int(max(track.steps.generation[own].max(initial=-1) for track, _, own in ranks))
    found = hangs(timeline)
    if last < 0:
        return None
    sharded = any((track.steps.having("sharded") & own).any() for track, _, own in ranks)
    first = 0 if sharded else last
    rows = []
    for track, clock, _ in ranks:
        steps = counted_rows(track, model, found) & (track.steps.generation >= first)
        settled = track.is_of(track.steps, model) & track.steps.settled
        settled &= track.steps.generation >= first
        every = _buckets_of(track, track.steps.step[settled], model, first)
        out = np.isin(track.buckets.step, track.steps.step[settled & ~steps])
        rows.append(RankRows(track, clock, steps, every & ~out, settled, every))
    names = [names for track in timeline.tracks for names in track.models if names[0] == model]
    return StepArrays(timeline, names[-1], last, rows)


def _buckets_of(track: RankTrack, steps: Ints, model: str, first: int) -> Bools:
    columns = track.buckets
    odd = columns.having("shadow") | columns.having("warmup") | columns.having("exception")
    of_model = track.is_of(columns, model) & (columns.generation >= first)
    found: Bools = of_model & ~odd & np.isin(columns.step, steps)
    return found
