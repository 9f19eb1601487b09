"""Which rows of the ranks' files enter statistics: those of the steps that count.

Timeline --timeline/counts.py, of each rank's rows--> RankRows --> StepArrays
"""

from __future__ import annotations

import numpy as np

from ..timeline import COUNTS, HANG, PROBED, Bools, Ints, RankTrack, Timeline, reasons
from .rank_rows import RankRows
from .step_arrays import StepArrays


def settled_steps(timeline: Timeline, model: str) -> StepArrays | None:
    """Return the arrays of a model's steps that count; ``None`` where none ever did."""
    of_ranks = [
        (track, clock, why, track.is_of(track.steps, model))
        for track, clock, why in zip(
            timeline.tracks, timeline.clocks, reasons(timeline), strict=True
        )
    ]
    last = max(
        int(track.steps.generation[own & np.isin(why, (COUNTS, HANG))].max(initial=-1))
        for track, _, why, own in of_ranks
    )
    if last < 0:
        return None
    rows = []
    for track, clock, why, own in of_ranks:
        steps, settled = own & (why == COUNTS), own & np.isin(why, (COUNTS, PROBED, HANG))
        every = _buckets_of(track, track.steps.step[settled], model, last)
        out = np.isin(track.buckets.step, track.steps.step[settled & ~steps])
        rows.append(RankRows(track, clock, steps, every & ~out, settled, every))
    names = [names for track in timeline.tracks for names in track.models if names[0] == model]
    return StepArrays(timeline, names[-1], last, rows)


def _buckets_of(track: RankTrack, steps: Ints, model: str, last: int) -> Bools:
    columns = track.buckets
    odd = columns.having("shadow") | columns.having("warmup") | columns.having("exception")
    in_time = columns.having("sharded") | (columns.generation >= last)
    found: Bools = track.is_of(columns, model) & in_time & ~odd & np.isin(columns.step, steps)
    return found
