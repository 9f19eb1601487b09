"""One model of a run, ready to be drawn: all ranks in one clock, ns since the run's origin.

    Timeline --scene_of(model)--> Scene: a RankScene a rank, buckets and steps sorted by time

The origin is the first time that any rank has, so that numbers stay small enough for a browser.
A device bucket is where the Perfetto file puts it: after its step's first ready bucket.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...records import AnomalyRecord, LayoutRecord
from ..timeline import (
    FLAGS,
    Arrivals,
    Ints,
    RankClock,
    RankTrack,
    Timeline,
    bucket_keys,
)
from ..timeline import arrivals as arrivals_of
from .stacking import rows_of

LATE = 1 << 10
"""Bit beside ``FLAGS``: this rank was last to have the bucket ready, by more than clocks may
be off and by more than ``_NOTABLE`` of the usual step."""

_NOTABLE = 0.02

Floats = npt.NDArray[np.float64]


@dataclass(slots=True)
class RankScene:
    """One rank.  Times are ns since the origin; ``_until`` arrays are running maxima of ends.

    ``row``: the bucket's row in ``track.buckets``.  ``spent``: ns in each of ``STAGE_NAMES`` and,
    last, in none of them.
    """

    track: RankTrack
    clock: RankClock
    row: Ints
    lane: Ints
    start: Ints
    end: Ints
    until: Ints
    step: Ints
    bucket: Ints
    flags: Ints
    spent: Floats
    step_number: Ints
    step_start: Ints
    step_end: Ints
    step_until: Ints
    step_exposed: Ints
    step_period: Ints
    step_last_ready: Ints
    step_flags: Ints
    anomalies: list[tuple[int, AnomalyRecord]]
    layouts: list[tuple[int, LayoutRecord]]

    @property
    def rank(self) -> int:
        """The rank."""
        return self.track.rank


@dataclass(slots=True)
class Scene:
    """All ranks of one model; ``origin``: rank 0's host time of 0, ``extent``: the last end."""

    model: str
    origin: int
    extent: int
    lanes: int
    ranks: list[RankScene]
    arrivals: Arrivals
    late: Ints
    margin: Ints


def scene_of(timeline: Timeline, model: str) -> Scene:
    """Return the scene of a model; an empty one where the run does not have it."""
    arrivals = arrivals_of(timeline, model)
    late, margin = arrivals.late()
    ranks = [
        _rank_scene(track, clock, model)
        for track, clock in zip(timeline.tracks, timeline.clocks, strict=True)
    ]
    origin = min(
        (int(v.min()) for r in ranks for v in (r.start, r.step_start) if len(v)), default=0
    )
    for rank in ranks:
        _move(rank, origin)
    _mark_late(ranks, arrivals, late, margin)
    ends = [int(v.max()) for r in ranks for v in (r.end, r.step_end) if len(v)]
    return Scene(
        model=model,
        origin=origin,
        extent=max(ends, default=0),
        lanes=max((int(r.lane.max()) + 1 for r in ranks if len(r.lane)), default=1),
        ranks=ranks,
        arrivals=arrivals,
        late=late,
        margin=margin,
    )


def _rank_scene(track: RankTrack, clock: RankClock, model: str) -> RankScene:
    columns, steps = track.buckets, track.steps
    untimed = columns.having("untimed")
    row = np.flatnonzero(track.is_of(columns, model) & ~untimed)
    common = clock.common(columns.ready[row])
    order = np.argsort(common, kind="stable")
    row, start = row[order], common[order]
    end = np.maximum(start, start + columns.done_after[row] - columns.ready_after[row])
    number, bucket = columns.step[row], columns.bucket[row]
    of_steps = np.flatnonzero(track.is_of(steps, model))
    of_steps = of_steps[np.argsort(steps.first_ready[of_steps], kind="stable")]
    first = clock.common(steps.first_ready[of_steps])
    step_shift = first - steps.first_ready[of_steps]
    exposed = steps.exposed[of_steps]
    step_end = _step_ends(steps.step[of_steps], steps.done[of_steps] + step_shift, row, track, end)
    step_end = np.maximum(step_end, first)
    host_last = steps.last_ready[of_steps] + step_shift
    return RankScene(
        track=track,
        clock=clock,
        row=row,
        lane=rows_of(number, bucket, start, end),
        start=start,
        end=end,
        until=end,
        step=number,
        bucket=bucket,
        flags=columns.flags[row].copy(),
        spent=_spent(track, row, end - start),
        step_number=steps.step[of_steps],
        step_start=first,
        step_end=step_end,
        step_until=step_end,
        step_exposed=np.clip(exposed, -1, step_end - first),
        step_period=steps.period[of_steps],
        step_last_ready=np.where(exposed > 0, step_end - exposed, host_last),
        step_flags=steps.flags[of_steps],
        anomalies=[(a.time_ns, a) for a in track.records.anomalies if a.model == model],
        layouts=[(x.time_ns, x) for x in track.records.layouts if x.model == model],
    )


def _step_ends(number: Ints, done: Ints, row: Ints, track: RankTrack, end: Ints) -> Ints:
    """Return when steps were done: of device steps, which the host does not see, the last end."""
    on_device = (track.buckets.flags[row] & FLAGS["device"]) != 0
    if not on_device.any() or not len(number):
        return done
    order = np.argsort(number, kind="stable")
    wanted = track.buckets.step[row[on_device]]
    at = np.clip(np.searchsorted(number[order], wanted), 0, len(order) - 1)
    known = number[order][at] == wanted
    last = np.full(len(number), np.iinfo(np.int64).min)
    np.maximum.at(last, order[at[known]], end[on_device][known])
    found: Ints = np.where(last == np.iinfo(np.int64).min, done, last)
    return found


def _spent(track: RankTrack, row: Ints, duration: Ints) -> Floats:
    """Return the ns of each bucket in each stage and, last, in none, (buckets, stages + 1)."""
    spent = track.time_in_stages()[row]
    rest = np.clip(duration - spent.sum(axis=1), 0, None)
    found: Floats = np.column_stack([spent, rest]).astype(np.float64)
    return found


def _move(rank: RankScene, origin: int) -> None:
    """Count all of a rank's times from the origin."""
    for name in ("start", "end", "step_start", "step_end", "step_last_ready"):
        setattr(rank, name, getattr(rank, name) - origin)
    rank.until = np.maximum.accumulate(rank.end) if len(rank.end) else rank.end
    rank.step_until = np.maximum.accumulate(rank.step_end) if len(rank.step_end) else rank.step_end
    rank.anomalies = [(_common(rank, at) - origin, a) for at, a in rank.anomalies]
    rank.layouts = [(_common(rank, at) - origin, x) for at, x in rank.layouts]


def _common(rank: RankScene, host_ns: int) -> int:
    return int(rank.clock.common(np.array([host_ns]))[0])


def _mark_late(ranks: list[RankScene], arrivals: Arrivals, late: Ints, margin: Ints) -> None:
    """Set ``LATE`` where a rank held the others up, and forget in ``late`` where it did not."""
    known = [r.step_period[r.step_period > 0] for r in ranks]
    periods = np.concatenate(known) if known else np.zeros(0, np.int64)
    least = _NOTABLE * float(np.median(periods)) if len(periods) else 0.0
    late[margin < least] = -1
    keys = bucket_keys(arrivals.step, arrivals.bucket)
    for index, rank in enumerate(ranks):
        own = keys[late == index]
        rank.flags[np.isin(bucket_keys(rank.step, rank.bucket), own)] |= LATE
