"""One model's arrays to its facts.

StepArrays --medians--> ModelFacts, with causes.py and units.py
layouts of the tracks ----^
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

from ...records import ErrorRecord
from ..run import Run, models_beside
from ..run.bootstrap import LEVEL, MEDIAN, block_length, draws_for, resampled
from ..run.bucket_table import SHOWN
from ..run.dense import Floats, StepArrays, known, known_middle, medians, spread, sums
from ..run.late import late_ranks
from ..run.order import is_order_known, often
from ..run.parts import exposure
from .causes import slow_steps
from .facts import BucketError, BucketFacts, ModelFacts, RankFacts, WaitsFor
from .provenance import ModelSource
from .units import is_synchronous, kind_facts, shares_of_steps


def model_facts(run: Run, arrays: StepArrays, source: ModelSource) -> ModelFacts:
    """Return the facts of a model, which ``source`` tells the steps of."""
    sample, model = arrays.sample, arrays.model
    wait_unknown = sample.wait_unknown  # first: what it takes in between, others have later
    period, exposed, sent = spread(arrays.period), spread(arrays.exposed), arrays.sent()
    waited = (
        sample.waited if arrays.is_sharded else sample.waited[..., sample.buckets == sample.last]
    )
    waits, parts = sums(waited), exposure(sample)
    net_exposed = arrays.exposed - np.nan_to_num(arrays.with_others(sample, waits))
    transfers = rate(sample.by_step("bus_bytes"), parts.transfer_busy, sample.by_step("wire_busy"))
    entries = (item for track in run.tracks for item in track.entries.items())
    widths = {b.gradient_bytes / b.numel for (of, _, _), b in entries if of == model and b.numel}
    return ModelFacts(
        model=model,
        hook=arrays.hook,
        backend=run.info.backend if run.info is not None else "",
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
        wire_busy_ns=known_middle(arrays.by_step("wire_busy")),
        gradient_bytes=int(known_middle(arrays.by_step("gradient_bytes")) or 0),
        wire_bytes=known_middle(sent),
        least_wire_bytes=known_middle(sent, 0.0),
        often_wire_bytes=known_middle(sent, 0.95),
        busbw_bytes_per_second=transfers,
        is_32_bit=widths == {4.0},
        is_whole=run.is_whole,
        is_order_known=is_order_known(arrays),
        wait_unknown=wait_unknown,
        buckets=tuple(_bucket_facts(sample, parts.shares)),
        ranks=rank_facts(run, arrays),
        late=late_ranks(sample),
        slow=slow_steps(arrays),
        beside=models_beside(run, model),
        is_sharded=arrays.is_sharded,
        is_synchronous=is_synchronous(sample),
        kinds=kind_facts(sample),
        wait_ns=known_middle(np.fmax.reduce(waits, axis=0)),
        net_exposed_ns=known_middle(np.maximum(net_exposed, 0.0)),
        exposed_kinds=parts.kinds,
    )


def _bucket_facts(arrays: StepArrays, shares: Floats) -> Iterator[BucketFacts]:
    summed = {
        how.fact: list(map(how.summed, arrays.of_each_bucket(column, with_probed=how.with_probed)))
        for column, how in SHOWN
        if how.summed is not None
    }
    ready, call = arrays.ready - arrays.first_ready[..., None], arrays.column("launched_after")
    wire = arrays.stages.get("wire", np.full_like(ready, np.nan))
    on_bus, waited, in_steps = arrays.column("bus_bytes"), arrays.waited, shares_of_steps(arrays)
    for b, index in enumerate(arrays.buckets.tolist()):
        if arrays.is_sharded and index not in arrays.units:
            continue  # the line that says which unit it is could not be read
        entry = arrays.entries.get(index)
        sizes = [(prod(one.shape), one.name) for one in (entry.parameters if entry else ())]
        stages = {name: known_middle(values[..., b]) for name, values in arrays.stages.items()}
        yield BucketFacts(
            **{fact: values[b] for fact, values in summed.items()},
            bucket=index,
            is_last=index == arrays.last,
            parameters=len(sizes),
            largest=largest(sizes),
            ready_ns=known_middle(ready[..., b]),
            call_ns=known_middle(call[..., b]),
            stages={name: ns for name, ns in stages.items() if ns is not None},
            waits_for=_waits_for(arrays, b),
            busbw_bytes_per_second=rate(
                on_bus[..., b], wire[..., b] - waited[..., b], wire[..., b]
            ),
            tail_share=known(float(shares[b])),
            error=bucket_error(arrays.errors.get(index, [])),
            unit=arrays.units.get(index),
            share_of_steps=float(in_steps[b]) if arrays.is_sharded else 1.0,
        )


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
    """Return the facts of each rank.

    Of a sharded model the lag is the most of all units', all of which are waited for; else the last
    bucket's, which one rank alone does not know.
    """
    of = arrays.sample
    is_last = of.buckets == of.last
    compress = of.stages.get("compress", np.full_like(of.done, np.nan))[..., is_last]
    lags = np.fmax.reduce(of.lags[:, is_last | of.is_sharded], axis=1, initial=np.nan)
    steps = np.count_nonzero(~np.isnan(arrays.by_step("step")), axis=1)
    return tuple(
        RankFacts(
            rank=track.rank,
            host=None if track.records.run is None else track.records.run.host,
            steps=int(steps[i]),
            period_ns=known_middle(arrays.period[i]),
            exposed_ns=known_middle(arrays.exposed[i]),
            overlap=known_middle(arrays.overlap[i]),
            lag_ns=known(float(lags[i])),
            compress_ns=known_middle(compress[i]),
        )
        for i, track in enumerate(run.tracks)
    )


def rate(count: Floats, transfer: Floats, wire: Floats) -> float | None:
    """Return the median bandwidth of transfers, bytes a second.

    Over all time on the wire, where no transfer is known.  ``None`` where no time went by, or no
    bytes, as in a group of one rank.
    """
    ns = wire if np.isnan(transfer).all() else transfer
    return known_middle(count * 1e9 / np.where(ns > 0, ns, np.nan)) or None


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
