"""Which steps enter statistics, and why the others do not: one answer for all that is shown.

    Run --reasons--> of each row of each rank's ``steps`` a place in REASONS

A step has a reason on each rank: one that has run out of data, or has lost a bucket, says nothing
against the others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .columns import Bools, Ints, RankTrack
from .hangs import Hang, hangs
from .run import Run, once

REASONS = ("counts", "warmup", "join_dummy", "incomplete", "rebuild", "checked", "hang")
"""Why a step does not count, behind that it does; of several the first stands.

``warmup``, ``join_dummy``, ``incomplete``, ``checked``: as ``StepRecord`` has them.  ``rebuild``:
the model had other buckets.  Of a sharded model all rebuilds count: one begins with each step that
has a collective more, and numbers stay.  ``hang``: ranks hung in it, or in the next step waited for
this rank, whose period holds that.
"""

COUNTS, WARMUP, JOIN_DUMMY, INCOMPLETE, REBUILD, CHECKED, HANG = range(len(REASONS))


@once
def reasons(run: Run) -> list[Ints]:
    """Return of each rank, by row in its ``steps``, the place of what is true in ``REASONS``."""
    hung = hangs(run)
    found = [np.zeros(len(track.steps), np.int64) for track in run.tracks]
    for model in run.model_names:
        own = [track.is_of(track.steps, model) for track in run.tracks]
        last = max(map(_last_rebuild, run.tracks, own), default=0)
        for track, rows, reason in zip(run.tracks, own, found, strict=True):
            older = (track.steps.rebuild < last) & ~track.steps.having("sharded")
            reason[rows & _holds_a_hang(track, model, hung)] = HANG
            reason[rows & track.steps.having("checked")] = CHECKED
            reason[rows & older] = REBUILD
            for flag in (INCOMPLETE, JOIN_DUMMY, WARMUP):
                reason[rows & track.steps.having(REASONS[flag])] = flag
    return found


def steps_of(run: Run, model: str) -> list[tuple[RankTrack, Bools, Ints]]:
    """Return each rank's track, which rows of its ``steps`` are the model's, and all reasons."""
    own = [track.is_of(track.steps, model) for track in run.tracks]
    return list(zip(run.tracks, own, reasons(run), strict=True))


def steps_left_out(run: Run, model: str) -> tuple[int, dict[str, int]]:
    """Return how many steps a model has, and how many count on no rank, by the first reason."""
    ranks = steps_of(run, model)
    numbers = np.concatenate([track.steps.step[rows] for track, rows, _ in ranks])
    seen, place = np.unique(numbers, return_inverse=True)
    first = np.full(len(seen), len(REASONS))
    np.minimum.at(first, place, np.concatenate([why[rows] for _, rows, why in ranks]))
    counts = dict(zip(REASONS, np.bincount(first, minlength=len(REASONS)).tolist(), strict=True))
    del counts["counts"]
    return len(seen), {reason: count for reason, count in counts.items() if count}


def _last_rebuild(track: RankTrack, rows: Bools) -> int:
    """Return the last rebuild that has a step with times of training as it is."""
    for flag in (WARMUP, JOIN_DUMMY, INCOMPLETE, CHECKED):
        rows = rows & ~track.steps.having(REASONS[flag])
    return int(track.steps.rebuild[rows].max(initial=0))


def _holds_a_hang(track: RankTrack, model: str, hung: Sequence[Hang]) -> Bools:
    of_model = [one.record for one in hung if one.record.model == model]
    before = [one.step - 1 for one in of_model if track.rank in one.ranks]
    return np.isin(track.steps.step, [*before, *(one.step for one in of_model)])
