"""The tables of a report as text, for the terminal and the page, and which rows are folded."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ...records import STAGES
from ...records.units import mb_per_second, megabytes, milliseconds, ms, percent
from .facts import BucketFacts, KindFacts, ModelFacts, RankFacts
from .step_arrays import StepArrays
from .units import are_alike


class Columns(NamedTuple):
    """A table: names of the columns, and rows of as many cells."""

    names: list[str]
    rows: list[list[str]]


def stages_of(model: ModelFacts) -> list[str]:
    """Return the stages that a model's buckets have, in the order in which they happen."""
    return [name for name in STAGES if any(name in b.stages for b in model.buckets)]


def bucket_columns(model: ModelFacts, buckets: Iterable[BucketFacts] | None = None) -> Columns:
    """Return a row for each bucket, or some: sizes in MB, times in ms, busbw in MB/s."""
    stages = stages_of(model)
    names = ["bucket", "gradients", "sent", "ready", "time", "p95", *stages]
    names += ["wait", "waits for", "tail", "busbw", "error"]
    return Columns(names, [_bucket_row(b, stages) for b in buckets or model.buckets])


def _bucket_row(b: BucketFacts, stages: list[str]) -> list[str]:
    times = [b.ready_ns, *((b.duration.p50, b.duration.p95) if b.duration else (None, None))]
    times += [*map(b.stages.get, stages), b.wait_ns]
    return [
        str(b.bucket),
        megabytes(b.gradient_bytes),
        megabytes(b.wire_bytes),
        *map(milliseconds, times),
        waits_for(b),
        percent(b.tail_share),
        busbw_of(b),
        "-" if b.error is None else f"{b.error.p50:.2g}",
    ]


def busbw_of(bucket: BucketFacts) -> str:
    """Return the bus bandwidth of a bucket: the least that it is, where its wait is not known."""
    text = mb_per_second(bucket.busbw_bytes_per_second)
    is_least = bucket.transfer_ns is None and bucket.busbw_bytes_per_second is not None
    return f"≥ {text}" if is_least else text


def about_busbw(model: ModelFacts) -> str:
    """Return what the column of bus bandwidths is."""
    if all(bucket.busbw_bytes_per_second is None for bucket in model.buckets):
        return "busbw (nccl-tests): none, or not known"
    if model.wait_unknown is None:
        return "busbw (nccl-tests) of transfers, in MB/s"
    return "busbw (nccl-tests) in MB/s, at least: over time on the wire, with what it waits"


def waits_for(bucket: BucketFacts) -> str:
    """Return whom a bucket waits for most often, and how often; ``-`` where nobody knows."""
    whom = bucket.waits_for
    return "-" if whom is None else f"rank {whom.rank}, {percent(whom.share)}"


def about_small(model: ModelFacts) -> str:
    """Return which gains are small."""
    noise = model.period_noise_ns
    off = "" if noise is None else f", or below the {ms(noise)} by which its median may be off"
    return f"below 3 % of a step{off}; not worth a lossy change"


def about_waits(model: ModelFacts, *, named: bool = True) -> str:
    """Return what the columns of waits are, or why nothing is in them.

    ``named``: there is one that names who is waited for.
    """
    if model.wait_unknown is not None:
        return f"wait: {'none' if model.is_alone else 'not known'}, as {model.wait_unknown}"
    whom = "; waits for: who is last more often than by chance, and in which share of the steps"
    if not (named and any(bucket.waits_for for bucket in model.buckets)):
        whom = ""
    return f"wait: the part of wire until the last rank is there, the mean{whom}"


def rank_columns(ranks: Iterable[RankFacts]) -> Columns:
    """Return a row for each rank: times in ms."""
    names = ["rank", "host", "steps", "step", "exposed", "overlap", "lag"]
    return Columns(names, [_rank_row(rank) for rank in ranks])


def _rank_row(r: RankFacts) -> list[str]:
    times = milliseconds(r.period_ns), milliseconds(r.exposed_ns)
    overlap, lag = percent(r.overlap), milliseconds(r.lag_ns)
    return [str(r.rank), r.host or "-", f"{r.steps:,}", *times, overlap, lag]


LONGEST = 26
"""Letters of a unit's name, of which the last ones tell most."""


def kind_columns(model: ModelFacts) -> Columns:
    """Return a row for each kind of collective: sizes in MB, times in ms, sums of a step."""
    names = ["collective", "a step", "payload", "time", "wait", "exposed", "share"]
    period = model.period.p50 if model.period is not None else 0.0
    rows = []
    for one in model.kinds:
        share = one.exposed_ns / period if one.exposed_ns is not None and period else None
        times = map(milliseconds, (one.duration_ns, one.wait_ns, one.exposed_ns))
        payload = megabytes(one.payload_bytes)
        rows.append([one.name, _counts(one), payload, *times, percent(share)])
    return Columns(names, rows)


def _counts(kind: KindFacts) -> str:
    """Return how many there are in a step, from the fewest to the most."""
    return f"{kind.fewest}-{kind.most}" if kind.fewest < kind.most else str(kind.count)


def about_kinds() -> str:
    """Return what the columns of kinds are."""
    return (
        "sums of a step, medians, of wait the mean; payload: parameters that a rank gives to "
        "gathers, gradients to reductions, in MB; times in ms; share: exposed, of the step"
    )


def unit_columns(
    model: ModelFacts, buckets: Sequence[BucketFacts] | None = None, longest: int = LONGEST
) -> Columns:
    """Return a row for each unit's collective, or some: sizes in MB, times in ms."""
    stages = [name for name in stages_of(model) if name != "wire"]
    names = ["no.", "unit", "collective", "payload", "sent", "time", "p95", *stages]
    names += ["wait", "waits for", "exposed", "busbw", "error"]
    rows = [_row(b, stages, longest) for b in buckets or model.buckets]
    if not are_alike(model):
        names.append("steps")
        for b, row in zip(buckets or model.buckets, rows, strict=True):
            row.append(percent(b.share_of_steps))
    return Columns(names, rows)


def _row(b: BucketFacts, stages: list[str], longest: int) -> list[str]:
    assert b.unit is not None
    times = [*((b.duration.p50, b.duration.p95) if b.duration else (None, None))]
    name = b.unit.name
    again = f" #{b.unit.turn + 1}" if b.unit.turn else ""
    return [
        str(b.bucket),
        name if len(name) <= longest else f"\u2026{name[1 - longest :]}",
        b.unit.kind + again,
        megabytes(b.gradient_bytes),
        megabytes(b.wire_bytes),
        *map(milliseconds, [*times, *map(b.stages.get, stages), b.wait_ns]),
        waits_for(b),
        milliseconds(b.exposed.p50 if b.exposed is not None else None),
        busbw_of(b),
        "-" if b.error is None else f"{b.error.p50:.2g}",
    ]


def about_units(model: ModelFacts, left_out: Collection[str] = ()) -> str:
    """Return what the columns of units are, without some that are not shown."""
    said = {
        "payload": "payload: a rank's parameters of a gather, gradients of a reduction, in MB",
        "unit": "times in ms",
        "exposed": "exposed: what training waits for it",
        "wait": about_waits(model, named="waits for" not in left_out),
        "busbw": about_busbw(model),
        "error": "error: relative L2",
        "steps": "" if are_alike(model) else "steps: which share of them has it",
    }
    return "; ".join(what for name, what in said.items() if what and name not in left_out)


MOST_ROWS = 32
"""Of a table, until which nothing is folded."""

_SHOWN = 8


def split_ranks(model: ModelFacts) -> tuple[list[RankFacts], list[RankFacts]]:
    """Return the ranks to show and those to fold: shown are late ones, and the extremes."""
    ranks = list(model.ranks)
    if len(ranks) <= MOST_ROWS:
        return ranks, []
    late = {one.rank for one in model.late}
    late |= {b.waits_for.rank for b in model.buckets if b.waits_for is not None}
    by_lag = sorted(ranks, key=lambda r: -(r.lag_ns or 0.0))[:_SHOWN]
    exposed = [r for r in ranks if r.exposed_ns is not None]
    ends = sorted(exposed, key=lambda r: r.exposed_ns or 0.0)
    chosen = late | {r.rank for r in (*by_lag, *ends[:2], *ends[-2:], ranks[0])}
    return [r for r in ranks if r.rank in chosen], [r for r in ranks if r.rank not in chosen]


def split_buckets(model: ModelFacts) -> tuple[list[BucketFacts], list[BucketFacts]]:
    """Return the buckets to show and those to fold: shown are those that cost or err most."""
    buckets = list(model.buckets)
    if len(buckets) <= 2 * MOST_ROWS:
        return buckets, []
    chosen = {buckets[0].bucket, *(b.bucket for b in buckets if b.is_last)}
    for key in (
        lambda b: b.tail_share or 0.0,
        lambda b: b.wait_ns or 0.0,
        lambda b: b.transfer_ns or 0.0,
        lambda b: b.error.p50 if b.error else 0.0,
        lambda b: b.exposed.p50 if b.exposed else 0.0,
    ):
        chosen |= {b.bucket for b in sorted(buckets, key=key, reverse=True)[:_SHOWN] if key(b)}
    return [b for b in buckets if b.bucket in chosen], [
        b for b in buckets if b.bucket not in chosen
    ]


def red_row(model: ModelFacts, arrays: StepArrays) -> str:
    """Return which rank is furthest behind in the picture of lags, in words."""
    arrays = arrays.sample
    lags = arrays.lags
    if np.isnan(lags).all():
        return ""
    noun = "unit" if model.is_sharded else "bucket"
    i, b = np.unravel_index(int(np.nanargmax(lags)), lags.shape)
    rank = model.ranks[int(i)]
    of = f" ({rank.host})" if rank.host else ""
    named = {one.rank for one in model.late}
    is_told = rank.rank not in named and not (model.is_sharded and model.wait_unknown)
    said = "; the others do not wait for it often enough to say so above" if is_told else ""
    return (
        f"The reddest is rank {rank.rank}{of}: {ms(float(lags[i, b]))} after the first rank at "
        f"{noun} {int(arrays.buckets[b])}{said}."
    )
