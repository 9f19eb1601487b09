"""One model of a run, ready to be drawn: all ranks in one clock, ns since the run's origin.

    Run --scene_of(model)--> Scene: a RankScene a rank, buckets and steps sorted by time

The origin is the first time that any rank has, so that numbers stay small enough for a browser.
A device bucket is where the Perfetto file puts it: after its step's first ready bucket.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from ...records import AnomalyRecord, LayoutRecord, Unit
from ..run import (
    COUNTS,
    FLAGS,
    STAGE_NAMES,
    UNKNOWN,
    Arrivals,
    Bools,
    Hang,
    Ints,
    RankClock,
    RankTrack,
    Run,
    Waits,
    bucket_keys,
    reasons,
)
from ..run import arrivals as arrivals_of
from ..run import hangs as hangs_of
from ..run import waits as waits_of
from .hang_bars import HangBar, LateBars, extent_with, hang_bars, lane_in, late_in
from .units import MAX_ROWS, Spans, exposed_at, index_of, rows_by_kind, rows_of, units_of

LATE = 1 << 10
"""Bit beside ``FLAGS``: others waited here for this rank, which is late (``hang_bars.py``)."""

KINDS = (*STAGE_NAMES, "wait", "other")
"""What time in a bucket is: ``wait`` is the part of ``wire`` that waits for the last rank, which
``wire`` then is without; ``other`` is in no stage."""

Floats = npt.NDArray[np.float64]
_Clock = Callable[[Ints], Ints]
_Record = TypeVar("_Record", AnomalyRecord, LayoutRecord)


@dataclass(frozen=True, slots=True)
class RankScene:
    """One rank, with an entry a bucket or step of ``buckets`` and ``steps``.

    ``step``, ``bucket``, ``lane``, ``flags`` are of buckets, and ``spent``: ns of each
    of ``KINDS``.  ``waited``, ``waited_for``: of each row of the track's stages, as ``Waits`` has
    them, but ``waited_for`` is a rank's number.  ``number``, ``counts``, ``exposed`` and
    ``last_ready`` are of steps.  ``exposed_at``: the stretches of time that are exposed.  ``unit``:
    of each bucket which of the scene's units, ``UNKNOWN`` of DDP's.
    """

    track: RankTrack
    buckets: Spans
    step: Ints
    bucket: Ints
    lane: Ints
    flags: Ints
    spent: Floats
    waited: Ints
    waited_for: Ints
    steps: Spans
    number: Ints
    counts: Bools
    exposed: Ints
    exposed_at: Spans
    last_ready: Ints
    unit: Ints
    anomalies: list[tuple[int, AnomalyRecord]]
    layouts: list[tuple[int, LayoutRecord]]
    hangs: list[HangBar]

    @property
    def rank(self) -> int:
        """The rank."""
        return self.track.rank


@dataclass(frozen=True, slots=True)
class Scene:
    """All ranks of one model; ``extent``: the last end, and of an open hang as much as shows it.

    ``late``: the ranks that the report names; ``late_note``: why it names none.  ``hangs``: each
    with when it began.  ``origin``: in rank 0's clock.  ``units``: the collectives of a sharded
    model, whose rows have ``titles``; both are empty of DDP's.
    """

    model: str
    extent: int
    lanes: int
    ranks: list[RankScene]
    arrivals: Arrivals
    late: list[LateBars]
    late_note: str
    hangs: list[tuple[int, Hang]]
    waits: Waits
    origin: int
    units: list[Unit]
    titles: list[str]

    @property
    def is_sharded(self) -> bool:
        """Whether bars are units' collectives, and not buckets."""
        return bool(self.titles)


def scene_of(run: Run, model: str) -> Scene:
    """Return the scene of a model; an empty one where the run does not have it."""
    (late, late_note), every_hang = late_in(run, model), hangs_of(run)
    waits = waits_of(run, model)
    numbers = np.array([*(track.rank for track in run.tracks), UNKNOWN])
    ranks = list(zip(run.tracks, run.clocks, reasons(run), strict=True))
    hangs = [one for one in every_hang if one.record.model in (model, "")]
    firsts = (
        int(clock.common(times.min(keepdims=True))[0])
        for track, clock, _ in ranks
        for times in (_ready(track, model), _first_ready(track, model))
        if len(times)
    )
    origin = min((*firsts, *(one.start for one in hangs)), default=0)
    scenes, units = [], units_of(run, model)
    for index, (track, clock, why) in enumerate(ranks):
        seen = partial(_since, clock, origin), units
        waited = waits.ns[index], numbers[waits.last[index]]
        own = (one.keys for one in late if one.rank == track.rank)
        found = next(own, np.zeros(0, np.int64)), why == COUNTS
        scenes.append(_rank_scene(track, model, seen, found, waited))
    lanes, titles = rows_by_kind([(r.unit, r.step, r.buckets) for r in scenes], units)
    if any((r.flags & FLAGS["sharded"]).any() for r in scenes):
        scenes = [replace(one, lane=lane) for one, lane in zip(scenes, lanes, strict=True)]
    else:
        titles = []
    # What never was done has a row by its number; by kind it is not known which.
    scenes = [_with_hangs(one, hangs, origin, 0 if titles else MAX_ROWS) for one in scenes]
    ends = (spans.end.max(initial=0) for r in scenes for spans in (r.buckets, r.steps))
    hung = max((bar.lane or 0 for r in scenes for bar in r.hangs), default=0)
    return Scene(
        model=model,
        extent=extent_with(hangs, origin, int(max(ends, default=0)), _usual_step(run, model)),
        lanes=max(hung, *(int(r.lane.max(initial=0)) for r in scenes), 0) + 1,
        ranks=scenes,
        arrivals=arrivals_of(run, model),
        late=late,
        late_note=late_note,
        hangs=[(one.start - origin, one) for one in hangs],
        waits=waits,
        origin=origin,
        units=units,
        titles=titles,
    )


def _with_hangs(rank: RankScene, hangs: list[Hang], origin: int, most: int) -> RankScene:
    lane_of = lane_in(rank.step, rank.bucket, rank.lane, most)
    return replace(rank, hangs=hang_bars(hangs, rank.rank, origin, lane_of))


def _usual_step(run: Run, model: str) -> float:
    periods = [t.steps.period[t.is_of(t.steps, model)] for t in run.tracks]
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


def _rank_scene(
    track: RankTrack,
    model: str,
    seen: tuple[_Clock, list[Unit]],
    found: tuple[Ints, Bools],
    waits: tuple[Ints, Ints],
) -> RankScene:
    """Return a rank; ``seen``: host times to ns since the origin, and what units there are.

    ``found``: keys of buckets that wait for it, which is late, and which of its steps count.
    ``waits``: of each stage how long, and for which rank.
    """
    columns, steps = track.buckets, track.steps
    (since, units), (late, counts) = seen, found
    row, start = _rows(track, model), since(_ready(track, model))
    buckets = Spans(row, start, start + (columns.done_after - columns.ready_after)[row])
    row, step, bucket = buckets.row, columns.step[buckets.row], columns.bucket[buckets.row]
    is_late = np.isin(bucket_keys(step, bucket), late)
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
        spent=_spent(track, buckets, waits[0]),
        waited=waits[0],
        waited_for=waits[1],
        steps=of_steps,
        number=steps.step[of_steps.row],
        counts=counts[of_steps.row],
        exposed=exposed,
        exposed_at=exposed_at(track, buckets, of_steps, exposed),
        last_ready=last_ready[of_steps.row],
        anomalies=_moments(track.records.anomalies, model, since),
        layouts=_moments(track.records.layouts, model, since),
        hangs=[],
        unit=index_of(track, row, units),
    )


def _spent(track: RankTrack, buckets: Spans, waited: Ints) -> Floats:
    """Return the ns of each of ``KINDS``, (buckets, kinds)."""
    spent = track.time_in_stages()
    rows = np.flatnonzero(waited > 0)
    of = track.bucket_of_stages()[rows]
    wait = np.bincount(of, weights=waited[rows], minlength=len(spent)).astype(np.int64)
    spent[:, STAGE_NAMES.index("wire")] -= wait
    spent = np.column_stack([spent, wait])[buckets.row]
    rest = np.clip(buckets.end - buckets.start - spent.sum(axis=1), 0, None)
    return np.column_stack([spent, rest]).astype(np.float64)


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
