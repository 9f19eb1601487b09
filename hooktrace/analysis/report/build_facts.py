"""One model's arrays to its facts.

StepArrays --medians--> ModelFacts, with late_ranks.py, exposed_tail.py, slow_steps.py
layouts, anomalies of the tracks ----^
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isnan

import numpy as np

from ...records import STAGES, AnomalyRecord, ErrorRecord, LayoutRecord
from ..timeline import Timeline
from .exposed_tail import queued_ns, tail_shares
from .facts import AnomalyFacts, BucketError, BucketFacts, ModelFacts, RankFacts, Spread
from .late_ranks import late_ranks
from .slow_steps import slow_steps
from .step_arrays import Floats, StepArrays, middle


def model_facts(timeline: Timeline, arrays: StepArrays, lags: Floats) -> ModelFacts:
    """Return the facts of a model; ``lags``: of its ranks, as ``late_ranks.lags`` gives them."""
    period, exposed = _spread(arrays.period), _spread(arrays.exposed)
    wire_busy = arrays.by_step("wire_busy")
    layouts = [
        layout
        for track in timeline.tracks
        for layout in reversed(track.records.layouts)
        if layout.model == arrays.model
    ]
    return ModelFacts(
        model=arrays.model,
        hook=arrays.hook,
        clock="device" if arrays.is_on_device else "host",
        steps=len(arrays.steps),
        period=period,
        exposed=exposed,
        exposed_share=exposed.p50 / period.p50 if exposed and period and period.p50 else None,
        overlap=_some(1 - arrays.exposed / arrays.busy),
        busy_ns=_some(arrays.by_step("busy")),
        wire_busy_ns=_some(wire_busy),
        queued_ns=queued_ns(arrays),
        gradient_bytes=int(_some(arrays.by_step("gradient_bytes")) or 0),
        wire_bytes=_some(arrays.by_step("wire_bytes")),
        busbw_bytes_per_second=_some(_rate(arrays.by_step("bus_bytes"), wire_busy)),
        is_32_bit=_is_32_bit(layouts),
        is_order_known=not np.isnan(lags).all(),
        buckets=_bucket_facts(arrays, layouts),
        ranks=_rank_facts(timeline, arrays, lags),
        late=late_ranks(arrays),
        slow=slow_steps(arrays),
        anomalies=anomaly_facts(timeline, [arrays.model]),
    )


def _bucket_facts(arrays: StepArrays, layouts: list[LayoutRecord]) -> tuple[BucketFacts, ...]:
    stages = {name: arrays.stages[name] for name in STAGES if name in arrays.stages}
    wire = stages.get("wire")
    first = np.fmin.reduce(arrays.ready, axis=2, initial=np.nan)
    duration, call = arrays.done - arrays.ready, arrays.call()
    wire_bytes, bus_bytes = arrays.column("wire_bytes"), arrays.column("bus_bytes")
    shares = tail_shares(arrays)
    found = []
    for b, index in enumerate(arrays.buckets.tolist()):
        parameters, largest = _parameters(layouts, arrays.generation, index)
        medians = {name: _some(values[:, :, b]) for name, values in stages.items()}
        known = {name: ns for name, ns in medians.items() if ns is not None}
        transfer = None if wire is None else _some(np.fmin.reduce(wire[:, :, b], axis=0))
        waits = transfer is not None and "wire" in known
        found.append(
            BucketFacts(
                bucket=index,
                is_last=index == arrays.last,
                parameters=parameters,
                largest=largest,
                gradient_bytes=int(arrays.gradient_bytes[b]),
                wire_bytes=_some(wire_bytes[:, :, b]),
                ready_ns=_some(arrays.ready[:, :, b] - first),
                duration=_spread(duration[:, :, b]),
                call_ns=_some(call[:, :, b]),
                stages=known,
                transfer_ns=transfer,
                wait_ns=max(0.0, known["wire"] - (transfer or 0.0)) if waits else None,
                busbw_bytes_per_second=None
                if wire is None
                else _some(_rate(bus_bytes[:, :, b], wire[:, :, b])),
                tail_share=float(shares[b]),
                error=_error([e for bucket, e in arrays.errors if bucket == index]),
            )
        )
    return tuple(found)


def _parameters(
    layouts: Iterable[LayoutRecord], generation: int, bucket: int
) -> tuple[int, tuple[str, float] | None]:
    """Return how many parameters a bucket has, and the largest one's name and share."""
    for layout in layouts:
        for one in layout.buckets if layout.generation == generation else ():
            if one.bucket == bucket and one.parameters:
                sizes = [(int(np.prod(shape)), name) for name, shape in one.parameters]
                size, name = max(sizes)
                return len(sizes), (name, size / max(1, sum(s for s, _ in sizes)))
    return 0, None


def _is_32_bit(layouts: Iterable[LayoutRecord]) -> bool:
    return {b.gradient_bytes / b.numel for x in layouts for b in x.buckets if b.numel} == {4.0}


def _error(errors: list[ErrorRecord]) -> BucketError | None:
    known = [(e.relative_l2, e) for e in errors if e.relative_l2 is not None]
    if not known:
        return None
    most, record = max(known, key=lambda pair: pair[0])
    return BucketError(
        p50=float(np.median([value for value, _ in known])),
        most=most,
        count=len(known),
        worst=record.worst[0].name if record.worst else None,
        has_feedback=any(e.residual_l2 is not None for e in errors),
        is_local=record.scope == "local",
    )


def _rank_facts(timeline: Timeline, arrays: StepArrays, lags: Floats) -> tuple[RankFacts, ...]:
    last = int(np.searchsorted(arrays.buckets, arrays.last))
    overlap = 1 - arrays.exposed / arrays.busy
    return tuple(
        RankFacts(
            rank=track.rank,
            host=None if track.records.run is None else track.records.run.host,
            steps=int((~np.isnan(arrays.called[i]).all(axis=1)).sum()),
            period_ns=_some(arrays.period[i]),
            exposed_ns=_some(arrays.exposed[i]),
            overlap=_some(overlap[i]),
            lag_ns=_some(lags[i, last : last + 1]),
        )
        for i, track in enumerate(timeline.tracks)
    )


def anomaly_facts(timeline: Timeline, models: Iterable[str]) -> tuple[AnomalyFacts, ...]:
    """Return the anomalies of some models, those that began first in front."""
    wanted = set(models)
    by_kind: dict[str, list[AnomalyRecord]] = {}
    for record in (a for track in timeline.tracks for a in track.records.anomalies):
        if record.model in wanted:
            by_kind.setdefault(record.kind, []).append(record)
    found = [
        AnomalyFacts(
            kind=kind,
            count=len(group),
            first=min(group, key=lambda a: a.step),
            ranks=tuple(sorted({a.rank for a in group if a.rank is not None})),
            buckets=tuple(sorted({a.bucket for a in group if a.bucket >= 0})),
        )
        for kind, group in by_kind.items()
    ]
    return tuple(sorted(found, key=lambda one: one.first.step))


def _rate(count: Floats, ns: Floats) -> Floats:
    """Return bytes a second; NaN where no time went by."""
    return count * 1e9 / np.where(ns > 0, ns, np.nan)


def _some(values: Floats) -> float | None:
    found = middle(values)
    return None if isnan(found) else found


def _spread(values: Floats) -> Spread | None:
    found = middle(values)
    return None if isnan(found) else Spread(found, middle(values, 0.95))
