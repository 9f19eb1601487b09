"""One model of a run, ready to be drawn: all ranks in one clock, ns since the run's origin.

    Run --scene_of(model)--> Scene: a RankScene a rank, buckets and steps sorted by time

The origin is the first time that any rank has, so that numbers stay small enough for a browser.
A device bucket is where the Perfetto file puts it: after its step's first ready bucket.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from ...records import AnomalyRecord, LayoutRecord, Unit
from ..run import (
    COUNTS,
    FLAGS,
    STAGE_NAMES,
    UNKNOWN,
    Bools,
    Hang,
    Ints,
    RankTrack,
    Run,
    Waits,
    bucket_keys,
    reasons,
)
from ..run import hangs as hangs_of
from ..run import waits as waits_of
from ..run.late import LateRank
from ..run.placed import placed
from ..run.waits import PIECES
from .hang_bars import HangBar, extent_with, hang_bars, lane_in, late_bars
from .other_bars import other_bars
from .units import MAX_ROWS, Spans, exposed_at, index_of, rows_by_kind, rows_of, units_of

LATE = 1 << 16
"""Bit beside ``FLAGS``: others waited here for this rank, which is late (``hang_bars.py``)."""

KINDS = (*PIECES, "other")
"""What time in a bucket is; ``other`` is in no stage."""

Floats = npt.NDArray[np.float64]
_Record = TypeVar("_Record", AnomalyRecord, LayoutRecord)
_NONE: Ints = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class RankScene:
    """One rank, with an entry a bucket or step of ``buckets`` and ``steps``.

    ``step``, ``bucket``, ``lane``, ``flags`` are of buckets, and ``spent``: ns of each
    of ``KINDS``.  ``waited``, ``waited_for``: of each row of the track's stages, as ``Waits`` has
    them, but ``waited_for`` is a rank's number.  ``number``, ``counts``, ``exposed`` and
    ``last_ready`` are of steps.  ``exposed_at``: the stretches of time that are exposed.  ``unit``:
    of each bucket which of the scene's units, ``UNKNOWN`` of DDP's.  ``others``: collectives that
    belong to no bucket.
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
    others: Spans
    anomalies: list[tuple[int, AnomalyRecord]]
    layouts: list[tuple[int, LayoutRecord]]
    hangs: list[HangBar]

    @property
    def rank(self) -> int:
        """The rank."""
        return self.track.rank


@dataclass(frozen=True, slots=True)
class Scene:
    """All ranks of one model.

    ``extent``: the last end, and of an open hang as much as shows it.  ``late``: the ranks that the
    report names, and where others waited for each; ``late_note``: why it names none.  ``hangs``:
    each with when it began.  ``origin``: in rank 0's clock.  ``units``: the collectives of a
    sharded model, whose rows have ``titles``; both are empty of DDP's.  ``others_lane``: the last
    row, of collectives that belong to no bucket; ``None`` where no rank has any.
    """

    run: Run
    model: str
    extent: int
    lanes: int
    ranks: list[RankScene]
    late: list[tuple[LateRank, Ints]]
    late_note: str
    hangs: list[tuple[int, Hang]]
    waits: Waits
    origin: int
    units: list[Unit]
    titles: list[str]
    others_lane: int | None = None

    @property
    def step_numbers(self) -> Ints:
        """The steps that any rank has, ascending."""
        return np.unique(np.concatenate([_NONE, *(r.number for r in self.ranks)]))

    @property
    def is_sharded(self) -> bool:
        """Whether bars are units' collectives, and not buckets."""
        return bool(self.titles)


def scene_of(run: Run, model: str) -> Scene:
    """Return the scene of a model; an empty one where the run does not have it."""
    late, late_note = late_bars(run, model)
    hangs = [one for one in hangs_of(run) if one.record.model in (model, "")]
    units, origin = units_of(run, model), _origin(run, model, hangs)
    scenes = [_rank_scene(run, model, i, origin) for i in range(len(run.tracks))]
    titles: list[str] = []
    if any((r.flags & FLAGS["sharded"]).any() for r in scenes):
        lanes, titles = rows_by_kind([(r.unit, r.step, r.buckets) for r in scenes], units)
        scenes = [replace(one, lane=lane) for one, lane in zip(scenes, lanes, strict=True)]
    # What never was done has a row by its number; by kind it is not known which.
    scenes = [_with_hangs(one, hangs, origin, 0 if titles else MAX_ROWS) for one in scenes]
    ends = (spans.end.max(initial=0) for r in scenes for spans in (r.buckets, r.steps))
    hung = max((bar.lane or 0 for r in scenes for bar in r.hangs), default=0)
    rows = max(hung, *(int(r.lane.max(initial=0)) for r in scenes), 0) + 1
    has_others = any(len(r.others.row) for r in scenes)
    return Scene(
        run=run,
        model=model,
        extent=extent_with(hangs, origin, int(max(ends, default=0)), _usual_step(run, model)),
        lanes=rows + has_others,
        ranks=scenes,
        late=late,
        late_note=late_note,
        hangs=[(one.start - origin, one) for one in hangs],
        waits=waits_of(run, model),
        origin=origin,
        units=units,
        titles=titles,
        others_lane=rows if has_others else None,
    )


def _origin(run: Run, model: str, hangs: list[Hang]) -> int:
    """Return the first time of a model that any rank has, in rank 0's clock."""
    firsts = [one.start for one in hangs]
    for track, at in zip(run.tracks, placed(run), strict=True):
        steps = at.first_ready[track.is_of(track.steps, model)]
        firsts += [int(x.min()) for x in (at.ready[_rows(track, model)], steps) if len(x)]
    return min(firsts, default=0)


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


def _rank_scene(run: Run, model: str, index: int, origin: int) -> RankScene:
    """Return a rank, without its hangs."""
    (track, clock), at = run.ranks[index], placed(run)[index]
    columns, steps, rows = track.buckets, track.steps, _rows(track, model)
    buckets = Spans(rows, at.ready[rows] - origin, at.done[rows] - origin)
    row, step, bucket = buckets.row, columns.step[buckets.row], columns.bucket[buckets.row]
    late, _ = late_bars(run, model)
    keys = next((keys for one, keys in late if one.rank == track.rank), _NONE)
    is_late = np.isin(bucket_keys(step, bucket), keys)
    rows = np.flatnonzero(track.is_of(steps, model))
    of_steps = Spans(rows, at.first_ready[rows] - origin, at.ended[rows] - origin)
    exposed = np.clip(steps.exposed[of_steps.row], -1, of_steps.end - of_steps.start)
    waited = waits_of(run, model).waited[index]
    numbers = np.array([*(track.rank for track in run.tracks), UNKNOWN])

    def moments(records: list[_Record]) -> list[tuple[int, _Record]]:
        own = [record for record in records if record.model == model]
        times = clock.common(np.array([record.time_ns for record in own], np.int64)) - origin
        return list(zip(times.tolist(), own, strict=True))

    return RankScene(
        track=track,
        buckets=buckets,
        step=step,
        bucket=bucket,
        lane=rows_of(step, bucket, buckets.start, buckets.end),
        flags=columns.flags[row] | is_late * LATE,
        spent=_spent(track, buckets, waited.ns),
        waited=waited.ns,
        waited_for=numbers[waited.last],
        steps=of_steps,
        number=steps.step[of_steps.row],
        counts=(reasons(run)[index] == COUNTS)[of_steps.row],
        exposed=exposed,
        exposed_at=exposed_at(track, buckets, of_steps, exposed),
        last_ready=at.last_ready[of_steps.row] - origin,
        anomalies=moments(track.records.anomalies),
        layouts=moments(track.records.layouts),
        hangs=[],
        unit=index_of(track, row, units_of(run, model)),
        others=other_bars(track, clock, origin),
    )


def _spent(track: RankTrack, buckets: Spans, waited: Ints) -> Floats:
    """Return the ns of each of ``KINDS``, (buckets, kinds)."""
    stages, rows = track.time_in_stages(), np.flatnonzero(waited > 0)
    of = track.bucket_of_stages()[rows]
    spent = np.zeros((len(buckets.row), len(KINDS)))
    spent[:, : len(STAGE_NAMES)] = stages[buckets.row]
    wait = np.bincount(of, weights=waited[rows], minlength=len(stages))[buckets.row]
    spent[:, KINDS.index("wait")] = wait
    spent[:, KINDS.index("wire")] -= wait
    took = buckets.end - buckets.start
    spent[:, KINDS.index("other")] = np.clip(took - spent.sum(axis=1), 0, None)
    return spent
