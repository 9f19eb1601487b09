"""One model's arrays to its facts.

StepArrays --medians--> ModelFacts, with causes.py
layouts, anomalies of the tracks ----^
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod

import numpy as np

from ...records import AnomalyRecord, ErrorRecord, Unit
from ..run import Hang, Run, hangs, models_beside
from ..run.bucket_table import SHOWN
from ..run.dense import Floats, StepArrays, known, known_middle, medians, spread, sums
from ..run.late import late_ranks
from ..run.order import is_order_known, often
from ..run.parts import exposure, waited_ns
from .causes import slow_steps, stalls
from .facts import (
    OFTEN_SENT,
    AnomalyFacts,
    BucketError,
    BucketFacts,
    HangFacts,
    ModelFacts,
    RankFacts,
    WaitsFor,
)
from .provenance import ModelSource
from .units import (
    is_synchronous,
    kind_facts,
    net_of_waits,
    shares_of_steps,
    step_waits,
)


def model_facts(run: Run, arrays: StepArrays, source: ModelSource) -> ModelFacts:
    """Return the facts of a model, which ``source`` tells the steps of."""
    sample = arrays.sample
    wait_unknown = sample.wait_unknown  # first: what it takes in between, others have later
    period, exposed = spread(arrays.period), spread(arrays.exposed)
    wire_busy, sent, waits = arrays.by_step("wire_busy"), arrays.sent(), step_waits(sample)
    parts = exposure(sample)
    on_bus, wire = sample.by_step("bus_bytes"), sample.by_step("wire_busy")
    entries = (item for track in run.tracks for item in track.entries.items())
    widths = {
        b.gradient_bytes / b.numel for (of, _, _), b in entries if of == arrays.model and b.numel
    }
    return ModelFacts(
        model=arrays.model,
        hook=arrays.hook,
        clock="device" if arrays.is_on_device else "host",
        steps=len(arrays.steps),
        bucket_steps=source.sampled,
        probed=source.probed,
        period=period,
        period_noise_ns=noise_ns(arrays.period),
        exposed=exposed,
        exposed_share=exposed.p50 / period.p50 if exposed and period and period.p50 else None,
        overlap=known_middle(arrays.overlap),
        busy_ns=known_middle(arrays.busy),
        wire_busy_ns=known_middle(wire_busy),
        queued_ns=known(waited_ns(sample, "queue")),
        gradient_bytes=int(known_middle(arrays.by_step("gradient_bytes")) or 0),
        wire_bytes=known_middle(sent),
        least_wire_bytes=known_middle(sent, 0.0),
        often_wire_bytes=known_middle(sent, 1 - OFTEN_SENT),
        busbw_bytes_per_second=_busbw(on_bus, parts.transfer_busy, wire),
        is_32_bit=widths == {4.0},
        is_whole=run.is_whole,
        is_order_known=is_order_known(arrays),
        wait_unknown=wait_unknown,
        buckets=_bucket_facts(sample, parts.shares),
        ranks=rank_facts(run, arrays),
        late=late_ranks(sample),
        slow=slow_steps(arrays),
        stalls=stalls(arrays),
        hangs=hang_facts(hangs(run), [arrays.model]),
        anomalies=anomaly_facts(run, [arrays.model]),
        beside=models_beside(run, arrays.model),
        is_sharded=arrays.is_sharded,
        is_synchronous=is_synchronous(sample),
        kinds=kind_facts(sample),
        wait_ns=known_middle(np.fmax.reduce(waits, axis=0)),
        net_exposed_ns=known_middle(
            net_of_waits(arrays.exposed, arrays.with_others(sample, waits))
        ),
        exposed_kinds=parts.kinds,
    )


def _bucket_facts(arrays: StepArrays, shares: Floats) -> tuple[BucketFacts, ...]:
    summed = {
        how.fact: list(map(how.summed, arrays.of_each_bucket(column, with_probed=how.with_probed)))
        for column, how in SHOWN
        if how.summed is not None
    }
    ready, call = arrays.ready - arrays.first_ready[..., None], arrays.column("launched_after")
    wire = arrays.stages.get("wire", np.full_like(ready, np.nan))
    on_bus, waited, exposed = arrays.column("bus_bytes"), arrays.waited, arrays.exposed_in
    transfer = wire - waited
    in_steps = shares_of_steps(arrays)
    found = []
    for b, index in enumerate(arrays.buckets.tolist()):
        if arrays.is_sharded and index not in arrays.units:
            continue  # of one unit on one rank, and of another on another
        entry = arrays.entries.get(index)
        sizes = [(prod(one.shape), one.name) for one in (entry.parameters if entry else ())]
        medians = {name: known_middle(values[..., b]) for name, values in arrays.stages.items()}
        stages = {name: ns for name, ns in medians.items() if ns is not None}
        facts = BucketFacts(
            **{fact: values[b] for fact, values in summed.items()},
            bucket=index,
            is_last=index == arrays.last,
            parameters=len(sizes),
            largest=largest(sizes),
            ready_ns=known_middle(ready[..., b]),
            call_ns=known_middle(call[..., b]),
            stages=stages,
            waits_for=_waits_for(arrays, b),
            busbw_bytes_per_second=_busbw(on_bus[..., b], transfer[..., b], wire[..., b]),
            tail_share=known(float(shares[b])),
            error=bucket_error(arrays.errors.get(index, [])),
            unit=arrays.units.get(index),
            net_ns=known_middle(net_of_waits(exposed[..., b], waited[..., b])),
            share_of_steps=float(in_steps[b]) if arrays.is_sharded else 1.0,
        )
        found.append(facts)
    return tuple(found)


def _waits_for(arrays: StepArrays, b: int) -> WaitsFor | None:
    shares, steps = arrays.waits_for(b)
    i = int(shares.argmax())
    is_often = shares[i] >= often(len(shares), steps)
    return WaitsFor(arrays.ranks[i], float(shares[i])) if is_often else None


def largest(sizes: list[tuple[int, str]]) -> tuple[str, float] | None:
    """Return of parameters, elements and name, the largest one's name and share."""
    if not sizes:
        return None
    size, name = max(sizes)
    return name, size / max(1, sum(one for one, _ in sizes))


def bucket_error(errors: list[ErrorRecord]) -> BucketError | None:
    """Return what the probes of one bucket found; ``None`` where none has a number."""
    known = [(e.relative_l2, e) for e in errors if e.relative_l2 is not None]
    if not known:
        return None
    most, record = max(known, key=lambda pair: pair[0])
    cosines = [e.cosine for e in errors if e.cosine is not None]
    return BucketError(
        cosine=float(np.median(cosines)) if cosines else None,
        p50=float(np.median([value for value, _ in known])),
        most=most,
        count=len(known),
        worst=record.worst[0].name if record.worst else None,
        has_feedback=any(e.residual_l2 is not None for e in errors),
        is_local=record.scope == "local",
        by_design=record.by_design,
    )


def rank_facts(run: Run, arrays: StepArrays) -> tuple[RankFacts, ...]:
    """Return the facts of each rank; of one rank alone the lag is not known."""
    of = arrays.sample
    is_last, call = of.buckets == of.last, medians(of.column("launched_after"), axis=1)
    compress = of.stages.get("compress", np.full_like(of.done, np.nan))[..., is_last]
    steps = np.count_nonzero(~np.isnan(arrays.by_step("step")), axis=1)
    return tuple(
        RankFacts(
            rank=track.rank,
            host=None if track.records.run is None else track.records.run.host,
            steps=int(steps[i]),
            period_ns=known_middle(arrays.period[i]),
            exposed_ns=known_middle(arrays.exposed[i]),
            overlap=known_middle(arrays.overlap[i]),
            lag_ns=_lag(of, i),
            compress_ns=known_middle(compress[i]),
            call_ns=known(float(sums(call[i, ~is_last]))),
        )
        for i, track in enumerate(run.tracks)
    )


def _lag(arrays: StepArrays, i: int) -> float | None:
    """Return a rank's lag at the last bucket; of units, all of which are waited for, the most."""
    if not arrays.is_sharded:
        return known_middle(arrays.lags[i, arrays.buckets == arrays.last])
    return known(float(np.fmax.reduce(arrays.lags[i], initial=np.nan)))


def hang_facts(hangs: Sequence[Hang], models: Collection[str]) -> tuple[HangFacts, ...]:
    """Return what is known of the hangs of some models, those without an end first."""
    return tuple(
        HangFacts(
            kind=one.record.kind,
            step=one.record.step,
            bucket=one.record.bucket,
            ranks=one.record.ranks,
            waiting=one.record.waiting,
            since_wall_ns=one.record.since_wall_ns,
            sentence=one.record.sentence,
            ended_after_ns=one.took_ns,
            went_on=one.went_on,
            outcome=one.outcome,
            recorded_by=one.ranks,
            unit=one.record.unit,
        )
        for one in hangs
        if one.record.model in models
    )


def anomaly_facts(run: Run, models: Collection[str]) -> tuple[AnomalyFacts, ...]:
    """Return the anomalies of some models, those that began first in front."""
    by_kind: dict[str, list[tuple[AnomalyRecord, Unit | None]]] = {}
    for track in run.tracks:
        for one in track.records.anomalies:
            if one.model in models:
                entry = track.entries.get((one.model, one.generation, one.bucket))
                unit = None if entry is None else entry.unit
                by_kind.setdefault(one.kind, []).append((one, unit))
    return tuple(sorted(map(_of_kind, by_kind.values()), key=lambda one: one.first.step))


def _of_kind(seen: list[tuple[AnomalyRecord, Unit | None]]) -> AnomalyFacts:
    """Return what is known of all anomalies of one kind, each with its unit."""
    (first, unit), group = min(seen, key=lambda pair: pair[0].step), [one for one, _ in seen]
    return AnomalyFacts(
        kind=first.kind,
        count=len(group),
        first=first,
        ranks=tuple(sorted({a.rank for a in group if a.rank is not None})),
        buckets=tuple(sorted({a.bucket for a in group if a.bucket >= 0})),
        unit=unit,
        units=tuple(dict.fromkeys(one for _, one in seen if one is not None)),
    )


def _busbw(on_bus: Floats, transfer: Floats, wire: Floats) -> float | None:
    """Return the bus bandwidth of transfers; of all time on the wire, where waits are not known."""
    found = known_middle(rate(on_bus, wire if np.isnan(transfer).all() else transfer))
    return found or None  # nothing crosses a bus in a group of one rank


def rate(count: Floats, ns: Floats) -> Floats:
    """Return bytes a second; NaN where no time went by."""
    return count * 1e9 / np.where(ns > 0, ns, np.nan)


_DRAWS = 200
_LEAST = 16
_MOST = 20_000
"""Steps that are looked at, those in the middle of a longer run."""


def noise_ns(period: Floats) -> float | None:
    """Return half the width of the median period's 95 % interval, ns; ``None`` below 16 steps.

    Steps are not independent, so whole blocks of steps that follow each other are drawn, in a
    circle: the circular block bootstrap (Politis and Romano 1992), its blocks as long as the cube
    root of the number of steps.
    """
    steps = medians(period, axis=0)
    steps = steps[~np.isnan(steps)]
    count = len(steps)
    if count < _LEAST:
        return None
    if count > _MOST:
        first = count // 2 - _MOST // 2
        steps, count = steps[first : first + _MOST], _MOST
    length = round(count ** (1 / 3))
    blocks = -(-count // length)
    random = np.random.default_rng(0)
    found = np.empty(_DRAWS)
    for i in range(_DRAWS):
        starts = random.integers(count, size=blocks)
        rows = (starts[:, None] + np.arange(length)).ravel()[:count] % count
        found[i] = np.median(steps[rows])
    low, high = np.quantile(found, [0.025, 0.975])
    return float(high - low) / 2
