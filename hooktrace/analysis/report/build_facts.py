"""One model's arrays to its facts.

StepArrays --medians--> ModelFacts: of buckets, ranks, slow steps
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np
from msgspec.structs import asdict

from ...records import ErrorRecord
from ..run import UNKNOWN, Run
from ..run.bootstrap import LEVEL, MEDIAN, block_length, draws_for, resampled
from ..run.bucket_table import SHOWN
from ..run.dense import (
    Floats,
    StepArrays,
    known,
    known_middle,
    middle,
    spread,
    sums,
)
from ..run.order import is_order_known, late_in, often
from ..run.parts import KINDS, step_parts
from ..run.source import model_source, of_step
from .facts import BucketError, BucketFacts, ModelFacts, RankFacts, SlowSteps, WaitsFor

SLOW = 1.5
"""A step is slow from so many median periods on."""

_FEWEST_PERIODS = 8
"""Of which it is told what is slow."""


def model_facts(run: Run, arrays: StepArrays) -> ModelFacts:
    """Return the facts of a model."""
    source = model_source(run, arrays)
    sample, per_step = arrays.sample, of_step(arrays.period)
    period, exposed = spread(per_step), spread(of_step(arrays.exposed))
    waited = sample.waited
    waits = sums(waited if arrays.is_sharded else waited[..., sample.buckets == sample.last])
    known_waits = arrays.with_others(sample, waits)
    if np.isnan(known_waits).all():  # as of one rank
        known_waits[:] = 0.0
    net_exposed = np.maximum(arrays.exposed - known_waits, 0.0)
    parts = step_parts(sample, busy_of=("transfer",))
    transfer = parts.busy_in[KINDS.index("transfer")]
    transfer[np.isnan(waited).all(axis=(0, 2))] = np.nan
    entries = (item for track in run.tracks for item in track.entries.items())
    widths = {
        b.gradient_bytes / b.numel for (of, _, _), b in entries if of == arrays.model and b.numel
    }
    return ModelFacts(
        **asdict(source),
        period=period,
        period_noise_ns=noise_ns(per_step),
        exposed=exposed,
        exposed_share=exposed.p50 / period.p50 if exposed and period and period.p50 else None,
        net_exposed_ns=known_middle(of_step(net_exposed)),
        last_wait_ns=known_middle(of_step(arrays.exposed - net_exposed)),
        overlap=known_middle(1 - of_step(arrays.exposed) / of_step(arrays.communication)),
        communication_ns=known_middle(of_step(arrays.communication)),
        wait_ns=known_middle(np.fmax.reduce(waits, axis=0)),
        exposed_wait_ns=known_middle(np.fmax.reduce(np.minimum(waits, sample.exposed), axis=0)),
        exposed_kinds=parts.exposed_kinds,
        busbw_bytes_per_second=_rate(
            of_step(sample.by_step("bus_bytes")),
            transfer,
            of_step(sample.by_step("wire_in_flight")),
        ),
        is_32_bit=widths == {4.0},
        is_whole=run.is_whole,
        is_order_known=is_order_known(arrays),
        buckets=tuple(_buckets(sample, parts.shares)),
        ranks=tuple(_ranks(run, arrays)),
        slow=_slow_steps(arrays),
    )


def _buckets(arrays: StepArrays, shares: Floats) -> Iterator[BucketFacts]:
    summed = {
        how.fact: list(
            map(how.summed, arrays.of_each_bucket(column, with_checked=how.with_checked))
        )
        for column, how in SHOWN
        if how.summed is not None
    }
    on_bus, unknown = arrays.column("bus_bytes"), np.full_like(arrays.first_ready, np.nan)
    errors: dict[int, list[ErrorRecord]] = {}
    for _, bucket, error in arrays.probes():
        errors.setdefault(bucket, []).append(error)
    there = ~np.isnan(arrays.called)
    times, steps = there.any(axis=0).sum(axis=0), max(1, int(there.any(axis=(0, 2)).sum()))
    for b, index in enumerate(arrays.buckets.tolist()):
        if arrays.is_sharded and index not in arrays.units:
            continue  # the line that says which unit it is could not be read
        entry = arrays.entries.get(index)
        sizes = [(prod(one.shape), one.name) for one in (entry.parameters if entry else ())]
        size, name = max(sizes, default=(0, ""))
        stages = {name: values[..., b] for name, values in arrays.stages.items()}
        middles = {name: known_middle(ns) for name, ns in stages.items()}
        wire = stages.get("wire", unknown)
        yield BucketFacts(
            **{fact: values[b] for fact, values in summed.items()},
            bucket=index,
            is_last=index == arrays.last,
            parameters=len(sizes),
            largest=(name, size / max(1, sum(one for one, _ in sizes))) if sizes else None,
            ready_ns=known_middle(arrays.ready[..., b] - arrays.first_ready),
            stages={name: ns for name, ns in middles.items() if ns is not None},
            waits_for=_waits_for(arrays, b),
            busbw_bytes_per_second=_rate(on_bus[..., b], wire - arrays.waited[..., b], wire),
            exposed_share=known(float(shares[b])),
            error=_error(errors.get(index, [])),
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
        by_design=record.by_design,
    )


def _rate(count: Floats, transfer: Floats, wire: Floats) -> float | None:
    """Return the median bandwidth of transfers, bytes a second.

    Over all time on the wire, where no transfer is known.  ``None`` where no time went by, or no
    bytes, as in a group of one rank.
    """
    ns = wire if np.isnan(transfer).all() else transfer
    return known_middle(count * 1e9 / np.where(ns > 0, ns, np.nan)) or None


def _ranks(run: Run, arrays: StepArrays) -> Iterator[RankFacts]:
    """Yield the facts of each rank.

    Of a sharded model the delay is the most of all units', all of which are waited for; else the
    last bucket's, which one rank alone does not know.
    """
    of, steps = arrays.sample, np.count_nonzero(~np.isnan(arrays.by_step("step")), axis=1)
    is_last = of.buckets == of.last
    delays = np.fmax.reduce(of.delays(is_last | of.is_sharded), axis=1, initial=np.nan)
    compress = of.stages["compress"][..., is_last] if "compress" in of.stages else of.done[..., :0]
    for i, track in enumerate(run.tracks):
        yield RankFacts(
            rank=track.rank,
            host=None if track.records.run is None else track.records.run.host,
            steps=int(steps[i]),
            period_ns=known_middle(arrays.period[i]),
            exposed_ns=known_middle(arrays.exposed[i]),
            overlap=known_middle(arrays.overlap[i]),
            arrival_delay_ns=known(float(delays[i])),
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
    more = np.clip(exposed[slow] - middle(exposed), 0.0, beyond)
    told = ~np.isnan(more)  # all others are taken to have the same share of it
    share = float(more[told].sum() / beyond[told].sum()) if told.any() else None
    late_rank, late_ns = None, 0.0
    if share is not None and share >= 1 / 4:  # else hardly anybody waits
        places = np.array([arrays.detailed.place_of(x) for x in arrays.steps[slow].tolist()])
        there = places != UNKNOWN
        least = float(np.nansum(more[there])) / 2
        late_rank, late_ns = late_in(arrays.detailed, places[there], least)
    worst = slow[np.argsort(-period[slow], kind="stable")]
    return SlowSteps(
        steps=tuple(arrays.steps[worst].tolist()),
        periods=count,
        slowest_ns=float(period[worst[0]]),
        excess_ns=float(beyond.sum()) / count,
        exposed_share=share,
        late_rank=late_rank,
        late_ns=late_ns,
    )


_LEAST, _MOST = 16, 20_000
"""Steps of which a median's interval is told, and that are looked at, in the middle of a run."""


def noise_ns(period: Floats) -> float | None:
    """Return half the width of the median period's 95 % interval, ns; ``None`` below 16 steps."""
    steps = period[~np.isnan(period)]
    first = max(0, len(steps) // 2 - _MOST // 2)
    steps = steps[first : first + _MOST]
    if len(steps) < _LEAST:
        return None
    length, draws = block_length(steps), draws_for(len(steps))
    found = resampled(steps[:, None], steps, MEDIAN, length=length, seed=0, draws=draws)
    low, high = np.quantile(found.drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(high - low) / 2
