"""One model's settled steps as dense arrays: (rank, step) and (rank, step, bucket).

    Timeline --rows of the last generation that count--> Grid: ns as float64, NaN where unknown

Only steps that enter statistics are here: complete, not warm-up, not a shadow.  Times of day count
from ``origin_ns`` of their step, in rank 0's clock, so that a double holds them to the nanosecond.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...records import ErrorRecord
from ..timeline import (
    BUCKET_FLAGS,
    STAGE_NAMES,
    UNKNOWN,
    Ints,
    RankClock,
    RankTrack,
    Timeline,
)

__all__ = ["Floats", "Grid", "build_grid", "middle"]

Floats = npt.NDArray[np.float64]


@dataclass(slots=True)
class Grid:
    """What was measured of one model, in ns and bytes; R ranks, S steps, B buckets.

    ``period`` to ``step_gradient_bytes``: (R, S), as ``StepRecord`` has them.  B is 0, or some
    steps have no buckets, where the file's limit left them out.
    ``called``: when the hook was called, after ``origin_ns``; ``uncertainty``: of that time in rank
    0's clock.  ``ready``, ``done``: in the clock that tells the truth for the bucket.  ``call``:
    how long the hook itself took.  ``stages``: by name, only those that occur; 0 where a bucket
    went without.  All (R, S, B).  ``errors``: rank, step, bucket and what its probe found.
    """

    model: str
    hook: str
    generation: int
    on_device: bool
    ranks: list[int]
    steps: Ints
    buckets: Ints
    origin_ns: Ints
    period: Floats
    exposed: Floats
    busy: Floats
    wire_busy: Floats
    sent_bytes: Floats
    step_bus_bytes: Floats
    step_gradient_bytes: Floats
    called: Floats
    uncertainty: Floats
    call: Floats
    ready: Floats
    done: Floats
    wire_bytes: Floats
    bus_bytes: Floats
    stages: dict[str, Floats]
    gradient_bytes: Ints
    last: int
    errors: list[tuple[int, int, int, ErrorRecord]]

    @property
    def duration(self) -> Floats:
        """From ready to done, (R, S, B)."""
        return self.done - self.ready


def middle(values: Floats, share: float = 0.5) -> float:
    """Return a percentile of what is known among ``values``, of any shape; NaN where nothing is."""
    known = values[~np.isnan(values)]
    return float(np.quantile(known, share)) if known.size else float("nan")


def build_grid(timeline: Timeline, model: str) -> Grid | None:
    """Return the grid of a model's last generation; ``None`` where no step of it counts."""
    settled = [_settled(track, model) for track in timeline.tracks]
    generations = [int(t.steps.generation[s].max()) for t, s in _pairs(timeline, settled) if len(s)]
    if not generations:
        return None
    last = max(generations)
    of_step = [s[t.steps.generation[s] == last] for t, s in _pairs(timeline, settled)]
    steps = np.unique(np.concatenate([t.steps.step[s] for t, s in _pairs(timeline, of_step)]))
    of_bucket = [
        _rows_of_steps(t, t.steps.step[s], model, last) for t, s in _pairs(timeline, of_step)
    ]
    every = [t.buckets.bucket[rows] for t, rows in _pairs(timeline, of_bucket)]
    buckets = np.unique(np.concatenate(every))
    grid = _empty(timeline, model, last, steps, buckets)
    ordered = list(zip(timeline.tracks, timeline.clocks, strict=True))
    for i, (track, clock) in enumerate(ordered):
        _fill_steps(grid, i, track, clock, of_step[i])
    for i, (track, clock) in enumerate(ordered):
        _fill_buckets(grid, i, track, clock, of_bucket[i])
    for sums in grid.stages.values():
        sums[np.isnan(grid.done)] = np.nan
    return grid


def _pairs(timeline: Timeline, rows: list[Ints]) -> list[tuple[RankTrack, Ints]]:
    return list(zip(timeline.tracks, rows, strict=True))


def _ids(track: RankTrack, model: str) -> list[int]:
    return [i for i, (name, _) in enumerate(track.models) if name == model]


def _settled(track: RankTrack, model: str) -> Ints:
    found: Ints = np.flatnonzero(
        np.isin(track.steps.model, _ids(track, model)) & track.steps.counts
    )
    return found


def _rows_of_steps(track: RankTrack, steps: Ints, model: str, generation: int) -> Ints:
    columns = track.buckets
    odd = columns.having("shadow") | columns.having("warmup") | columns.having("exception")
    found: Ints = np.flatnonzero(
        np.isin(columns.model, _ids(track, model))
        & (columns.generation == generation)
        & ~odd
        & np.isin(columns.step, steps)
    )
    return found


def _empty(timeline: Timeline, model: str, generation: int, steps: Ints, buckets: Ints) -> Grid:
    ranks = [track.rank for track in timeline.tracks]
    by_step = (len(ranks), len(steps))
    by_bucket = (*by_step, len(buckets))

    def unknown(shape: tuple[int, ...]) -> Floats:
        return np.full(shape, np.nan)

    names = [n for t in timeline.tracks for n, h in t.models if n == model]
    hooks = [h for t in timeline.tracks for n, h in t.models if n == model]
    return Grid(
        model=names[-1],
        hook=hooks[-1],
        generation=generation,
        on_device=False,
        ranks=ranks,
        steps=steps,
        buckets=buckets,
        origin_ns=np.full(len(steps), np.iinfo(np.int64).max),
        period=unknown(by_step),
        exposed=unknown(by_step),
        busy=unknown(by_step),
        wire_busy=unknown(by_step),
        sent_bytes=unknown(by_step),
        step_bus_bytes=unknown(by_step),
        step_gradient_bytes=unknown(by_step),
        called=unknown(by_bucket),
        uncertainty=unknown(by_bucket),
        call=unknown(by_bucket),
        ready=unknown(by_bucket),
        done=unknown(by_bucket),
        wire_bytes=unknown(by_bucket),
        bus_bytes=unknown(by_bucket),
        stages={},
        gradient_bytes=np.zeros(len(buckets), np.int64),
        last=int(buckets[-1]) if len(buckets) else 0,
        errors=[],
    )


def _known(values: Ints) -> Floats:
    found: Floats = np.where(values == UNKNOWN, np.nan, values.astype(np.float64))
    return found


def _fill_steps(grid: Grid, i: int, track: RankTrack, clock: RankClock, rows: Ints) -> None:
    at = np.searchsorted(grid.steps, track.steps.step[rows])
    for name in ("period", "exposed", "busy", "wire_busy"):
        getattr(grid, name)[i, at] = _known(getattr(track.steps, name)[rows])
    for name, column in (
        ("sent_bytes", track.steps.wire_bytes),
        ("step_bus_bytes", track.steps.bus_bytes),
        ("step_gradient_bytes", track.steps.gradient_bytes),
    ):
        getattr(grid, name)[i, at] = _known(column[rows])
    np.minimum.at(grid.origin_ns, at, clock.common(track.steps.first_ready[rows]))


def _fill_buckets(grid: Grid, i: int, track: RankTrack, clock: RankClock, rows: Ints) -> None:
    columns = track.buckets
    step = np.searchsorted(grid.steps, columns.step[rows])
    bucket = np.searchsorted(grid.buckets, columns.bucket[rows])
    origin = grid.origin_ns[step]
    called = columns.called[rows]
    # What the clock adds to a host time of that moment, which device times are moved by too.
    shift = clock.common(called) - called
    grid.called[i, step, bucket] = called + shift - origin
    grid.uncertainty[i, step, bucket] = _known(clock.uncertainty(called))
    grid.call[i, step, bucket] = columns.launched[rows] - called
    timed = (columns.flags[rows] & _UNTIMED) == 0
    for name in ("ready", "done"):
        values = (getattr(columns, name)[rows] + shift - origin).astype(np.float64)
        getattr(grid, name)[i, step, bucket] = np.where(timed, values, np.nan)
    grid.wire_bytes[i, step, bucket] = _known(columns.wire_bytes[rows])
    grid.bus_bytes[i, step, bucket] = _known(columns.bus_bytes[rows])
    grid.gradient_bytes[bucket] = columns.gradient_bytes[rows]
    last = columns.bucket[rows][columns.having("is_last")[rows]]
    grid.last = int(last[-1]) if len(last) else grid.last
    grid.on_device |= bool((columns.flags[rows] & _ON_DEVICE).any())
    _fill_stages(grid, i, track, rows, (step, bucket))
    own = set(rows.tolist()) & track.errors.keys()
    grid.errors += [
        (track.rank, int(columns.step[row]), int(columns.bucket[row]), track.errors[row])
        for row in sorted(own)
    ]


def _fill_stages(grid: Grid, i: int, track: RankTrack, rows: Ints, at: tuple[Ints, Ints]) -> None:
    """Sum a bucket's stages of the same name."""
    stages = track.stages
    place = np.full(len(track.buckets), -1)
    place[rows] = np.arange(len(rows))
    own = place[stages.bucket] >= 0
    for index in np.unique(stages.name[own]):
        chosen = own & (stages.name == index)
        lengths = (stages.end[chosen] - stages.start[chosen]).astype(np.float64)
        sums = np.bincount(place[stages.bucket[chosen]], lengths, minlength=len(rows))
        name = STAGE_NAMES[index]
        if name not in grid.stages:
            grid.stages[name] = np.zeros(grid.called.shape)
        grid.stages[name][i, *at] = sums


_UNTIMED = BUCKET_FLAGS["untimed"]
_ON_DEVICE = BUCKET_FLAGS["device"] | BUCKET_FLAGS["untimed"]
