"""One model's arrays to its facts.

StepArrays --medians--> ModelFacts: of buckets, kinds of units' collectives, ranks, slow steps
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

from ...records import UNIT_KINDS, ErrorRecord
from ..run import UNKNOWN, Bools, Run, models_beside
from ..run.bootstrap import LEVEL, MEDIAN, block_length, draws_for, resampled
from ..run.bucket_table import SHOWN
from ..run.dense import (
    Floats,
    StepArrays,
    known,
    known_middle,
    mean,
    medians,
    middle,
    spread,
    sums,
)
from ..run.late import late_in, late_ranks
from ..run.order import is_order_known, often
from ..run.parts import exposure
from .facts import BucketError, BucketFacts, KindFacts, ModelFacts, RankFacts, SlowSteps, WaitsFor
from .provenance import ModelSource

SLOW = 1.5
"""A step is slow from so many median periods on."""

_FEWEST_PERIODS = 8
"""Of which it is told what is slow."""


def model_facts(run: Run, arrays: StepArrays, source: ModelSource) -> ModelFacts:
    """Return the facts of a model, which ``source`` tells the steps of."""
    sample, model = arrays.sample, arrays.model
    wait_unknown = sample.wait_unknown  # first: what it takes in between, others have later
    period, exposed, sent = spread(arrays.period), spread(arrays.exposed), arrays.sent()
    waited = sample.waited
    waits = sums(waited if arrays.is_sharded else waited[..., sample.buckets == sample.last])
    parts = exposure(sample)
    net_exposed = arrays.exposed - np.nan_to_num(arrays.with_others(sample, waits))
    entries = (item for track in run.tracks for item in track.entries.items())
    widths = {b.gradient_bytes / b.numel for (of, _, _), b in entries if of == model and b.numel}
    return ModelFacts(
        model=model,
        hook=arrays.hook,
        clock="device" if arrays.is_on_device else "host",
        steps=source.counted,
        bucket_steps=source.sampled,
        probed=source.probed,
        period=period,
        period_noise_ns=noise_ns(arrays.period),
        exposed=exposed,
        exposed_share=exposed.p50 / period.p50 if exposed and period and period.p50 else None,
        overlap=known_middle(arrays.overlap),
        busy_ns=known_middle(arrays.busy),
        gradient_bytes=int(known_middle(arrays.by_step("gradient_bytes")) or 0),
        wire_bytes=known_middle(sent),
        least_wire_bytes=known_middle(sent, 0.0),
        often_wire_bytes=known_middle(sent, 0.95),
        busbw_bytes_per_second=_rate(
            sample.by_step("bus_bytes"), parts.transfer_busy, sample.by_step("wire_busy")
        ),
        is_32_bit=widths == {4.0},
        is_whole=run.is_whole,
        is_order_known=is_order_known(arrays),
        wait_unknown=wait_unknown,
        buckets=tuple(_buckets(sample, parts.shares)),
        ranks=tuple(_ranks(run, arrays)),
        late=late_ranks(sample),
        slow=_slow_steps(arrays),
        beside=models_beside(run, model),
        is_sharded=arrays.is_sharded,
        kinds=tuple(_kinds(sample)),
        wait_ns=known_middle(np.fmax.reduce(waits, axis=0)),
        net_exposed_ns=known_middle(np.maximum(net_exposed, 0.0)),
        exposed_kinds=parts.kinds,
    )


def _buckets(arrays: StepArrays, shares: Floats) -> Iterator[BucketFacts]:
    summed = {
        how.fact: list(map(how.summed, arrays.of_each_bucket(column, with_probed=how.with_probed)))
        for column, how in SHOWN
        if how.summed is not None
    }
    ready, call = arrays.ready - arrays.first_ready[..., None], arrays.column("launched_after")
    wire = arrays.stages.get("wire", np.full_like(ready, np.nan))
    on_bus, transfer = arrays.column("bus_bytes"), wire - arrays.waited
    there = ~np.isnan(arrays.called)
    times, steps = there.any(axis=0).sum(axis=0), max(1, int(there.any(axis=(0, 2)).sum()))
    for b, index in enumerate(arrays.buckets.tolist()):
        if arrays.is_sharded and index not in arrays.units:
            continue  # the line that says which unit it is could not be read
        entry = arrays.entries.get(index)
        sizes = [(prod(one.shape), one.name) for one in (entry.parameters if entry else ())]
        size, name = max(sizes, default=(0, ""))
        stages = {name: known_middle(values[..., b]) for name, values in arrays.stages.items()}
        yield BucketFacts(
            **{fact: values[b] for fact, values in summed.items()},
            bucket=index,
            is_last=index == arrays.last,
            parameters=len(sizes),
            largest=(name, size / max(1, sum(one for one, _ in sizes))) if sizes else None,
            ready_ns=known_middle(ready[..., b]),
            call_ns=known_middle(call[..., b]),
            stages={name: ns for name, ns in stages.items() if ns is not None},
            waits_for=_waits_for(arrays, b),
            busbw_bytes_per_second=_rate(on_bus[..., b], transfer[..., b], wire[..., b]),
            tail_share=known(float(shares[b])),
            error=_error(arrays.errors.get(index, [])),
            unit=arrays.units.get(index),
            share_of_steps=float(times[b] / steps) if arrays.is_sharded else 1.0,
        )


def _waits_for(arrays: StepArrays, b: int) -> WaitsFor | None:
    shares, steps = arrays.waits_for(b)
    i = int(shares.argmax())
    is_often = shares[i] >= often(len(shares), steps)
    return WaitsFor(arrays.ranks[i], float(shares[i])) if is_often else None


def _error(errors: list[ErrorRecord]) -> BucketError | None:
    """Return what the probes of one bucket found; ``None`` where none has a number."""
    found = [(e.relative_l2, e) for e in errors if e.relative_l2 is not None]
    if not found:
        return None
    most, record = max(found, key=lambda pair: pair[0])
    cosines = [e.cosine for e in errors if e.cosine is not None]
    return BucketError(
        cosine=float(np.median(cosines)) if cosines else None,
        p50=float(np.median([value for value, _ in found])),
        most=most,
        count=len(found),
        worst=record.worst[0].name if record.worst else None,
        has_feedback=any(e.residual_l2 is not None for e in errors),
        is_local=record.scope == "local",
        by_design=record.by_design,
    )


def _rate(count: Floats, transfer: Floats, wire: Floats) -> float | None:
    """Return the median bandwidth of transfers, bytes a second.

    Over all time on the wire, where no transfer is known.  ``None`` where no time went by, or no
    bytes, as in a group of one rank.
    """
    ns = wire if np.isnan(transfer).all() else transfer
    return known_middle(count * 1e9 / np.where(ns > 0, ns, np.nan)) or None


def _kinds(arrays: StepArrays) -> Iterator[KindFacts]:
    """Yield the sums over each kind of units' collectives; nothing of DDP's buckets.

    Medians of the steps that have any, since steps need not have the same collectives; of waits
    means, since whoever is last waits for nobody.
    """
    there = np.where(np.isnan(arrays.called), np.nan, 1.0)
    payload, took = arrays.column("gradient_bytes"), arrays.done - arrays.ready
    unknown = np.isnan(arrays.exposed_in) & ~np.isnan(there)  # as is then what all of them expose
    for name in UNIT_KINDS if arrays.units else ():
        at = _being(arrays, "kind", name)
        if not at.any():
            continue
        calls = sums(there[..., at])
        exposed = sums(arrays.exposed_in[..., at])
        yield KindFacts(
            name=name,
            fewest=round(np.nanmin(calls)),
            most=round(np.nanmax(calls)),
            payload_bytes=round(middle(sums(payload[..., at]))),
            duration_ns=known_middle(sums(took[..., at])),
            exposed_ns=known_middle(np.where(unknown[..., at].any(axis=2), np.nan, exposed)),
            wait_ns=known(mean(sums(arrays.waited[..., at]))),
        )


def _being(arrays: StepArrays, field: str, value: str) -> Bools:
    """Return which buckets are units' collectives that have a value, (B,)."""
    units = (arrays.units.get(index) for index in arrays.buckets.tolist())
    return np.array([getattr(unit, field, None) == value for unit in units], bool)


def _ranks(run: Run, arrays: StepArrays) -> Iterator[RankFacts]:
    """Yield the facts of each rank.

    Of a sharded model the lag is the most of all units', all of which are waited for; else the last
    bucket's, which one rank alone does not know.
    """
    of, steps = arrays.sample, np.count_nonzero(~np.isnan(arrays.by_step("step")), axis=1)
    waited_for = (of.buckets == of.last) | of.is_sharded
    lags = np.fmax.reduce(of.lags[:, waited_for], axis=1, initial=np.nan)
    compress = of.stages.get("compress", np.full_like(of.done, np.nan))[..., of.buckets == of.last]
    for i, track in enumerate(run.tracks):
        yield RankFacts(
            rank=track.rank,
            host=None if track.records.run is None else track.records.run.host,
            steps=int(steps[i]),
            period_ns=known_middle(arrays.period[i]),
            exposed_ns=known_middle(arrays.exposed[i]),
            overlap=known_middle(arrays.overlap[i]),
            lag_ns=known(float(lags[i])),
            compress_ns=known_middle(compress[i]),
        )


def _slow_steps(arrays: StepArrays) -> SlowSteps | None:
    """Return the slow steps; ``None`` where there are none, or too few periods are known."""
    period = arrays.job_period
    count, usual = int(np.count_nonzero(~np.isnan(period))), middle(period)
    slow = np.flatnonzero(period >= SLOW * usual)
    if count < _FEWEST_PERIODS or usual <= 0 or not len(slow):
        return None
    beyond = period[slow] - usual
    # The median over ranks, of an even number the upper middle: of two the one that waits.
    exposed = np.sort(arrays.exposed, axis=0)  # NaN comes last
    upper = np.count_nonzero(~np.isnan(exposed), axis=0)[None] // 2
    exposed = np.take_along_axis(exposed, upper.clip(max=len(exposed) - 1), axis=0)[0]
    more = exposed[slow] - middle(exposed)
    share, late_rank, late_ns = _share_of(beyond, more), None, 0.0
    if share is not None and share >= 1 / 4:  # else hardly anybody waits
        places = np.array([arrays.detailed.place_of(x) for x in arrays.steps[slow].tolist()])
        told = places != UNKNOWN
        least = float(np.nansum(np.clip(more, 0.0, beyond)[told])) / 2
        late_rank, late_ns = late_in(arrays.detailed, places[told], least)
    backward = 0 * period if arrays.is_sharded else medians(arrays.backward, axis=0)
    worst = slow[np.argsort(-period[slow], kind="stable")]
    return SlowSteps(
        steps=tuple(arrays.steps[worst].tolist()),
        periods=count,
        slowest_ns=float(period[worst[0]]),
        excess_ns=float(beyond.sum()) / count,
        exposed_share=share,
        backward_share=_share_of(beyond, backward[slow] - middle(backward)),
        late_rank=late_rank,
        late_ns=late_ns,
    )


def _share_of(beyond: Floats, more: Floats) -> float | None:
    """Return which share of slow steps' excess is of one kind; ``None`` where no step tells.

    ``beyond``: what each slow step takes beyond the median, ``more``: what it does of that kind.
    Steps that do not tell are taken to have the same share of it as those that do.
    """
    told = ~np.isnan(more)
    if not told.any():
        return None
    return float(np.clip(more[told], 0.0, beyond[told]).sum() / beyond[told].sum())


_LEAST, _MOST = 16, 20_000
"""Steps of which a median's interval is told, and that are looked at, in the middle of a run."""


def noise_ns(period: Floats) -> float | None:
    """Return half the width of the median period's 95 % interval, ns; ``None`` below 16 steps."""
    steps = medians(period, axis=0)
    steps = steps[~np.isnan(steps)]
    first = max(0, len(steps) // 2 - _MOST // 2)
    steps = steps[first : first + _MOST]
    if len(steps) < _LEAST:
        return None
    length, draws = block_length(steps), draws_for(len(steps))
    found = resampled(steps[:, None], steps, MEDIAN, length=length, seed=0, draws=draws)
    low, high = np.quantile(found.drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(high - low) / 2
