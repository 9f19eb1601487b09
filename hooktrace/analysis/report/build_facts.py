"""Timelines to facts.

Timeline --grid.py--> Grid --tails.py, lateness.py--> ModelFacts --+
         --missing.py--> what is not there ------------------------+--> RunFacts
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isnan

import numpy as np

from ...records import STAGES, AnomalyRecord, ErrorRecord
from ..timeline import Timeline
from .facts import (
    AnomalyFacts,
    BucketError,
    BucketFacts,
    ModelFacts,
    RankFacts,
    RunFacts,
    Spread,
)
from .late_ranks import lags, lateness
from .missing import missing
from .step_arrays import Floats, Grid, build_grid, middle
from .tails import charged_share, slow_steps

__all__ = ["build_facts"]


def build_facts(timeline: Timeline, *, model: str | None = None) -> RunFacts:
    """Return the facts of a run, of one model or of all that have settled steps."""
    names = [model] if model is not None else timeline.models
    grids = [grid for name in names if (grid := build_grid(timeline, name)) is not None]
    said = missing(timeline)
    said += [
        f"model {name}: no step has settled, so there is nothing to measure; DDP keeps its buckets "
        "from the second step on"
        for name in names
        if name not in {grid.model for grid in grids}
    ]
    with_grid = {grid.model for grid in grids}
    every = [a for track in timeline.tracks for a in track.trace.anomalies]
    return RunFacts(
        run=timeline.run,
        ranks=len(timeline.tracks),
        models=tuple(_model_facts(timeline, grid) for grid in grids),
        missing=tuple(said),
        unaligned=tuple(timeline.unaligned),
        anomalies=_anomalies(a for a in every if a.model in set(names) - with_grid),
    )


def _model_facts(timeline: Timeline, grid: Grid) -> ModelFacts:
    share = charged_share(grid)
    found = lags(grid)
    every = [a for t in timeline.tracks for a in t.trace.anomalies if a.model == grid.model]
    busy = np.where(grid.busy > 0, grid.busy, np.nan)
    rate = grid.step_bus_bytes * 1e9 / np.where(grid.wire_busy > 0, grid.wire_busy, np.nan)
    return ModelFacts(
        model=grid.model,
        hook=grid.hook,
        clock="device" if grid.on_device else "host",
        steps=len(grid.steps),
        period=_spread(grid.period),
        exposed=_spread(grid.exposed),
        overlap=_some(1 - grid.exposed / busy),
        busy_ns=_some(grid.busy),
        wire_busy_ns=_some(grid.wire_busy),
        gradient_bytes=int(_some(grid.step_gradient_bytes) or 0),
        wire_bytes=_some(grid.sent_bytes),
        busbw_bytes_per_second=_some(rate),
        is_32_bit=_is_32_bit(timeline, grid),
        buckets=tuple(
            _bucket_facts(timeline, grid, b, float(share[b])) for b in range(len(grid.buckets))
        ),
        ranks=tuple(_rank_facts(timeline, grid, i, found) for i in range(len(grid.ranks))),
        late=lateness(grid),
        slow=slow_steps(grid),
        anomalies=_anomalies(every),
        grid=grid,
        lags=found,
    )


def _bucket_facts(timeline: Timeline, grid: Grid, b: int, charged: float) -> BucketFacts:
    index = int(grid.buckets[b])
    stages = {name: grid.stages[name][:, :, b] for name in STAGES if name in grid.stages}
    wire = stages.get("wire")
    busbw = None
    if wire is not None:
        busbw = _some(grid.bus_bytes[:, :, b] * 1e9 / np.where(wire > 0, wire, np.nan))
    parameters, largest = _parameters(timeline, grid, index)
    return BucketFacts(
        bucket=index,
        is_last=index == grid.last,
        parameters=parameters,
        largest=largest,
        gradient_bytes=int(grid.gradient_bytes[b]),
        wire_bytes=_some(grid.wire_bytes[:, :, b]),
        ready_ns=_some(grid.ready[:, :, b] - np.fmin.reduce(grid.ready, axis=2)),
        duration=_spread(grid.duration[:, :, b]),
        call_ns=_some(grid.call[:, :, b]),
        stages={
            name: middle(values) for name, values in stages.items() if _some(values) is not None
        },
        transfer_ns=None if wire is None else _some(np.fmin.reduce(wire, axis=0)),
        busbw_bytes_per_second=busbw,
        charged=charged,
        error=_error([e for _, _, bucket, e in grid.errors if bucket == index]),
    )


def _parameters(
    timeline: Timeline, grid: Grid, bucket: int
) -> tuple[int, tuple[str, float] | None]:
    """Return how many parameters a bucket has, and the largest one's name and share."""
    for track in timeline.tracks:
        for layout in reversed(track.trace.layouts):
            if layout.model != grid.model or layout.generation != grid.generation:
                continue
            for one in layout.buckets:
                if one.bucket == bucket and one.parameters:
                    sizes = [(int(np.prod(shape)), name) for name, shape in one.parameters]
                    size, name = max(sizes)
                    return len(sizes), (name, size / max(1, sum(s for s, _ in sizes)))
    return 0, None


def _is_32_bit(timeline: Timeline, grid: Grid) -> bool:
    elements = {
        b.gradient_bytes / b.numel
        for track in timeline.tracks
        for layout in track.trace.layouts
        for b in layout.buckets
        if layout.model == grid.model and b.numel
    }
    return elements == {4.0}


def _error(errors: list[ErrorRecord]) -> BucketError | None:
    known = [(e.relative_l2, e) for e in errors if e.relative_l2 is not None]
    if not known:
        return None
    values = [value for value, _ in known]
    most, record = max(known, key=lambda pair: pair[0])
    return BucketError(
        p50=float(np.median(values)),
        most=most,
        count=len(values),
        worst=record.worst[0].name if record.worst else None,
        has_feedback=any(e.residual_l2 is not None for e in errors),
        is_local=record.scope == "local",
    )


def _rank_facts(timeline: Timeline, grid: Grid, i: int, found: Floats) -> RankFacts:
    run = timeline.tracks[i].trace.run
    busy = np.where(grid.busy[i] > 0, grid.busy[i], np.nan)
    at = int(np.searchsorted(grid.buckets, grid.last))
    return RankFacts(
        rank=grid.ranks[i],
        host=None if run is None else run.host,
        steps=int((~np.isnan(grid.called[i]).all(axis=1)).sum()),
        period_ns=_some(grid.period[i]),
        exposed_ns=_some(grid.exposed[i]),
        overlap=_some(1 - grid.exposed[i] / busy),
        lag_ns=_some(found[i, at : at + 1]),
    )


def _anomalies(records: Iterable[AnomalyRecord]) -> tuple[AnomalyFacts, ...]:
    by_kind: dict[str, list[AnomalyRecord]] = {}
    for record in records:
        by_kind.setdefault(record.kind, []).append(record)
    found = []
    for kind, group in by_kind.items():
        first = min(group, key=lambda a: a.step)
        ranks = {a.rank for a in group if a.rank is not None}
        buckets = {a.bucket for a in group if a.bucket >= 0}
        found.append(
            AnomalyFacts(
                kind=kind,
                count=len(group),
                first=first,
                ranks=tuple(sorted(ranks)),
                buckets=tuple(sorted(buckets)),
            )
        )
    return tuple(sorted(found, key=lambda one: one.first.step))


def _some(values: Floats) -> float | None:
    found = middle(values)
    return None if isnan(found) else found


def _spread(values: Floats) -> Spread | None:
    found = middle(values)
    return None if isnan(found) else Spread(found, middle(values, 0.95))
