"""One model of a run, ready to be drawn: all ranks in one clock, ns since the run's origin.

    Timeline --scene_of(model)--> Scene: a RankScene a rank, buckets and steps sorted by time

The origin is the first time that any rank has, so that numbers stay small enough for a browser.
A device bucket is where the Perfetto file puts it: after its step's first ready bucket.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from ...records import AnomalyRecord, LayoutRecord
from ..timeline import UNKNOWN, Arrivals, Ints, RankClock, RankTrack, Timeline, bucket_keys
from ..timeline import arrivals as arrivals_of

LATE = 1 << 10
"""Bit beside ``FLAGS``: this rank was last to have the bucket ready, by more than clocks may
be off and by more than ``_NOTABLE`` of the usual step."""

_NOTABLE = 0.02

MAX_ROWS = 12
"""Rows of buckets in a rank's lane, at most."""

Floats = npt.NDArray[np.float64]
_Clock = Callable[[Ints], Ints]
_Record = TypeVar("_Record", AnomalyRecord, LayoutRecord)


class Spans:
    """Stretches of time, ns since the origin, by their ``start``.

    ``row``: of each in the track's columns.
    """

    def __init__(self, row: Ints, start: Ints, end: Ints) -> None:
        order = np.argsort(start, kind="stable")
        self.row, self.start = row[order], start[order]
        self.end: Ints = np.maximum(end, start)[order]
        self._until = np.maximum.accumulate(self.end)

    def inside(self, t0: int, t1: int) -> Ints:
        """Return the places of those that overlap a stretch."""
        low = int(np.searchsorted(self._until, t0))
        high = int(np.searchsorted(self.start, t1, side="right"))
        found: Ints = low + np.flatnonzero(self.end[low:high] >= t0)
        return found


@dataclass(frozen=True, slots=True)
class RankScene:
    """One rank, with an entry a bucket or step of ``buckets`` and ``steps``.

    ``step``, ``bucket``, ``lane``, ``flags`` are of buckets, and ``spent``: ns in each of
    ``STAGE_NAMES`` and, last, in none of them.  ``number``, ``exposed`` and ``last_ready`` are of
    steps.
    """

    track: RankTrack
    buckets: Spans
    step: Ints
    bucket: Ints
    lane: Ints
    flags: Ints
    spent: Floats
    steps: Spans
    number: Ints
    exposed: Ints
    last_ready: Ints
    anomalies: list[tuple[int, AnomalyRecord]]
    layouts: list[tuple[int, LayoutRecord]]

    @property
    def rank(self) -> int:
        """The rank."""
        return self.track.rank


@dataclass(frozen=True, slots=True)
class Scene:
    """All ranks of one model; ``extent``: the last end.

    ``late``, ``margin``: the row in ``arrivals`` of the rank that held the others up, and by how
    long, ns.
    """

    model: str
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
    late = np.where(margin < _NOTABLE * _usual_step(timeline, model), UNKNOWN, late)
    keys = bucket_keys(arrivals.step, arrivals.bucket)
    ranks = list(zip(timeline.tracks, timeline.clocks, strict=True))
    origin = min(
        (
            int(clock.common(times.min(keepdims=True))[0])
            for track, clock in ranks
            for times in (_ready(track, model), _first_ready(track, model))
            if len(times)
        ),
        default=0,
    )
    scenes = [
        _rank_scene(track, model, partial(_since, clock, origin), keys[late == index])
        for index, (track, clock) in enumerate(ranks)
    ]
    ends = (spans.end.max(initial=0) for r in scenes for spans in (r.buckets, r.steps))
    return Scene(
        model=model,
        extent=int(max(ends, default=0)),
        lanes=max((int(r.lane.max(initial=0)) + 1 for r in scenes), default=1),
        ranks=scenes,
        arrivals=arrivals,
        late=late,
        margin=margin,
    )


def _usual_step(timeline: Timeline, model: str) -> float:
    periods = [t.steps.period[t.is_of(t.steps, model)] for t in timeline.tracks]
    known = np.concatenate([p[p > 0] for p in periods]) if periods else np.zeros(0)
    return float(np.median(known)) if len(known) else 0.0


def _rows(track: RankTrack, model: str) -> Ints:
    """Return the rows of the buckets that have times."""
    return np.flatnonzero(track.is_of(track.buckets, model) & ~track.buckets.having("untimed"))


def _ready(track: RankTrack, model: str) -> Ints:
    return track.buckets.ready[_rows(track, model)]


def _first_ready(track: RankTrack, model: str) -> Ints:
    return track.steps.first_ready[track.is_of(track.steps, model)]


def _since(clock: RankClock, origin: int, host_ns: Ints) -> Ints:
    return clock.common(host_ns) - origin


def _rank_scene(track: RankTrack, model: str, since: _Clock, late: Ints) -> RankScene:
    """Return a rank; ``since``: host times to ns since the origin; ``late``: keys of buckets."""
    columns, steps = track.buckets, track.steps
    row, start = _rows(track, model), since(_ready(track, model))
    buckets = Spans(row, start, start + (columns.done_after - columns.ready_after)[row])
    row, step, bucket = buckets.row, columns.step[buckets.row], columns.bucket[buckets.row]
    is_late = np.isin(bucket_keys(step, bucket), late)
    spent = track.time_in_stages()[row]
    rest = np.clip(buckets.end - buckets.start - spent.sum(axis=1), 0, None)
    done = _with_device(track, buckets, buckets.end, since(steps.done))
    last_ready = _with_device(track, buckets, buckets.start, since(steps.last_ready))
    of_model = np.flatnonzero(track.is_of(steps, model))
    of_steps = Spans(of_model, since(steps.first_ready[of_model]), done[of_model])
    exposed = np.clip(steps.exposed[of_steps.row], -1, of_steps.end - of_steps.start)
    return RankScene(
        track=track,
        buckets=buckets,
        step=step,
        bucket=bucket,
        lane=rows_of(step, bucket, buckets.start, buckets.end),
        flags=columns.flags[row] | is_late * LATE,
        spent=np.column_stack([spent, rest]).astype(np.float64),
        steps=of_steps,
        number=steps.step[of_steps.row],
        exposed=exposed,
        last_ready=last_ready[of_steps.row],
        anomalies=_moments(track.records.anomalies, model, since),
        layouts=_moments(track.records.layouts, model, since),
    )


def _with_device(track: RankTrack, buckets: Spans, of_buckets: Ints, of_steps: Ints) -> Ints:
    """Return a moment of each step: on a device, which the host does not see, its last bucket's."""
    columns = track.buckets
    at = np.flatnonzero(columns.having("device")[buckets.row])
    row = buckets.row[at]
    step = track.steps.rows_of(columns.model[row], columns.step[row])
    known = step != UNKNOWN
    found = of_steps.copy()
    found[step[known]] = np.iinfo(np.int64).min
    np.maximum.at(found, step[known], of_buckets[at[known]])
    return found


def _moments(records: list[_Record], model: str, since: _Clock) -> list[tuple[int, _Record]]:
    """Return a model's records, each with when it was."""
    own = [record for record in records if record.model == model]
    times = since(np.array([record.time_ns for record in own], np.int64))
    return list(zip(times.tolist(), own, strict=True))


def rows_of(step: Ints, bucket: Ints, start: Ints, end: Ints) -> Ints:
    """Return the row in a rank's lane, below ``MAX_ROWS``, of each bucket.

    Few buckets: a row for each index, so that a step is a staircase and a bucket is always at the
    same height.  Many: each takes the first row that is free, and the rows begin anew with each
    step.  Where more than ``MAX_ROWS`` are under way at once, some share a row.
    """
    if not len(step):
        return np.zeros(0, np.int64)
    if bucket.max() < MAX_ROWS:
        return bucket.copy()
    order = np.lexsort((start, step))
    sorted_step = step[order]
    firsts = np.flatnonzero(np.concatenate(([True], sorted_step[1:] != sorted_step[:-1])))
    sizes = np.diff(np.append(firsts, len(order)))
    busy_to = np.full((len(firsts), MAX_ROWS), np.iinfo(np.int64).min)
    rows: Ints = np.zeros(len(order), np.int64)
    # The k-th bucket of all steps at once: as many turns as a step has buckets.
    for k in range(int(sizes.max())):
        steps = np.flatnonzero(sizes > k)
        at = order[firsts[steps] + k]
        free = busy_to[steps] <= start[at, None]
        chosen = free.argmax(axis=1)
        full = np.flatnonzero(~free.any(axis=1))
        chosen[full] = busy_to[steps[full]].argmin(axis=1)
        busy_to[steps, chosen] = np.maximum(busy_to[steps, chosen], end[at])
        rows[at] = chosen
    return rows
