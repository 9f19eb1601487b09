"""The tables of a report, and which rows are folded.

ModelFacts --> bucket_table, or kind_table and unit_table; rank_table
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ...records import STAGES
from ...records.units import mb_per_second, megabytes, milliseconds, ms, percent
from ..document.tree import Column, Table
from ..run.bucket_table import SHOWN
from ..run.dense import StepArrays
from .facts import BucketFacts, KindFacts, ModelFacts, RankFacts
from .units import are_alike

MOST_ROWS = 32
"""Of a table, until which nothing is folded."""

_SHOWN = 8


def stages_of(model: ModelFacts) -> list[str]:
    """Return the stages that a model's buckets have, in the order in which they happen."""
    return [name for name in STAGES if any(name in b.stages for b in model.buckets)]


class _Cells(NamedTuple):
    """A column of a table of buckets, and its text in a bucket's row.

    ``fact``: the field that it shows, of a column of ``run/bucket_table.py``.
    """

    column: Column
    text: Callable[[BucketFacts], str]
    fact: str = ""


def _shown(name: str, **otherwise: Any) -> _Cells:
    """Return a column of ``run/bucket_table.py``; ``otherwise``: other fields of its ``Column``."""
    how = next(how for column, how in SHOWN if column.name == name)
    column = replace(Column(how.heading, how.about, how.rank), **otherwise)
    return _Cells(column, lambda bucket: _text(name, getattr(bucket, how.fact)), how.fact)


def _with_others(model: ModelFacts, first: list[_Cells], last: list[_Cells]) -> list[_Cells]:
    """Return both with the columns between that are in neither, and known of any bucket."""
    placed = {one.fact for one in (*first, *last)}
    others = [
        _shown(column.name)
        for column, how in SHOWN
        if how.heading and how.fact not in placed
        if any(getattr(bucket, how.fact) is not None for bucket in model.buckets)
    ]
    return [*first, *others, *last]


def _text(name: str, fact: Any) -> str:
    """Return a fact as text, by the unit in its column's name; of a spread its median."""
    number = getattr(fact, "p50", fact)
    for unit, text in (("_ns", milliseconds), ("_bytes", megabytes), ("_share", percent)):
        if name.endswith(unit):
            return text(number)
    return "-" if number is None else f"{number:.2g}"


def _stage(name: str) -> _Cells:
    return _Cells(Column(name), lambda bucket: milliseconds(bucket.stages.get(name)))


def _p95(rank: int) -> _Cells:
    return _Cells(
        Column("p95", rank=rank), lambda b: milliseconds(b.duration.p95 if b.duration else None)
    )


def _table(model: ModelFacts, title: str, cells: list[_Cells], folded_name: str) -> Table:
    shown, folded = split_buckets(model)
    why = "; shown are those that cost, wait or err most" if folded else ""
    ranks = f"{len(model.ranks)} ranks" if len(model.ranks) > 1 else "1 rank"
    return Table(
        f"{title}: medians of {model.bucket_steps:,} steps on {ranks}, {model.clock} times",
        [one.column for one in cells],
        [[one.text(bucket) for one in cells] for bucket in shown],
        caption=f"sizes in MB, times in ms{why}",
        folded=[[one.text(bucket) for one in cells] for bucket in folded],
        folded_name=folded_name,
    )


def bucket_table(model: ModelFacts) -> Table:
    """Return a row for each bucket: sizes in MB, times in ms, busbw in MB/s."""
    first = [
        _Cells(Column("bucket"), lambda b: str(b.bucket)),
        _shown("gradient_bytes"),
        _shown("wire_bytes"),
        _Cells(
            Column("ready", "ready: after the step's first bucket", rank=8),
            lambda b: milliseconds(b.ready_ns),
        ),
        _shown("duration_ns"),
        _p95(rank=5),
        *map(_stage, stages_of(model)),
        _shown("wait_ns", about=_about_waits(model)),
    ]
    last = [
        _whom(model),
        _Cells(
            Column("tail", "tail: share of what is exposed that the bucket adds", rank=2),
            lambda b: percent(b.tail_share),
        ),
        _Cells(Column("busbw", _about_busbw(model), rank=1), _busbw_of),
        _shown("error_relative_l2"),
    ]
    return _table(model, "Buckets", _with_others(model, first, last), "buckets")


def _whom(model: ModelFacts) -> _Cells:
    about = ""
    if any(bucket.waits_for for bucket in model.buckets):
        about = "waits for: who is last more often than by chance, and in which share of the steps"
    return _Cells(Column("waits for", about, rank=9), _waits_for)


def _busbw_of(bucket: BucketFacts) -> str:
    """Return the bus bandwidth of a bucket: the least that it is, where its wait is not known."""
    text = mb_per_second(bucket.busbw_bytes_per_second)
    is_least = bucket.transfer_ns is None and bucket.busbw_bytes_per_second is not None
    return f"≥ {text}" if is_least else text


def _about_busbw(model: ModelFacts) -> str:
    if all(bucket.busbw_bytes_per_second is None for bucket in model.buckets):
        return "busbw (nccl-tests): none, or not known"
    if model.wait_unknown is None:
        return "busbw (nccl-tests) of transfers, in MB/s"
    return "busbw (nccl-tests) in MB/s, at least: over time on the wire, with what it waits"


def _waits_for(bucket: BucketFacts) -> str:
    """Return whom a bucket waits for most often, and how often; ``-`` where nobody knows."""
    whom = bucket.waits_for
    return "-" if whom is None else f"rank {whom.rank}, {percent(whom.share)}"


def _about_waits(model: ModelFacts) -> str:
    """Return what a column of waits is, or why nothing is in it."""
    if model.wait_unknown is not None:
        return f"wait: {'none' if model.is_alone else 'not known'}, as {model.wait_unknown}"
    return "wait: the part of wire until the last rank is there, the mean"


def about_small(model: ModelFacts) -> str:
    """Return which gains are small."""
    noise = model.period_noise_ns
    off = "" if noise is None else f", or below the {ms(noise)} by which its median may be off"
    return f"below 3 % of a step{off}; not worth a lossy change"


def rank_table(model: ModelFacts) -> Table:
    """Return a row for each rank: times in ms."""
    shown, folded = split_ranks(model)
    where = "at the unit where it is largest" if model.is_sharded else "of the last bucket"
    where += ", by the host's calls," if model.clock == "device" else ""
    why = "; shown are those that others wait for, the furthest behind, the most and least exposed"
    columns = [
        Column("rank"),
        Column("host", of="names"),
        *map(Column, ("steps", "step", "exposed", "overlap")),
        Column("lag", f"lag: {where} after the first rank, where clocks are known"),
    ]
    return Table(
        "Ranks", columns, list(map(_rank_row, shown)), folded=list(map(_rank_row, folded)),
        caption=f"medians in ms{why if folded else ''}", folded_name="ranks",
    )  # fmt: skip


def _rank_row(r: RankFacts) -> list[str]:
    times = milliseconds(r.period_ns), milliseconds(r.exposed_ns)
    overlap, lag = percent(r.overlap), milliseconds(r.lag_ns)
    return [str(r.rank), r.host or "-", f"{r.steps:,}", *times, overlap, lag]


def kind_table(model: ModelFacts) -> Table:
    """Return a row for each kind of collective: sizes in MB, times in ms, sums of a step."""
    period = model.period.p50 if model.period is not None else 0.0
    rows = []
    for one in model.kinds:
        share = one.exposed_ns / period if one.exposed_ns is not None and period else None
        times = map(milliseconds, (one.duration_ns, one.wait_ns, one.exposed_ns))
        payload = megabytes(one.payload_bytes)
        rows.append([one.name, _counts(one), payload, *times, percent(share)])
    columns = [
        Column("collective", of="names"),
        Column("a step"),
        Column(
            "payload",
            "payload: parameters that a rank gives to gathers, gradients to reductions, in MB",
        ),
        *map(Column, ("time", "wait", "exposed")),
        Column("share", "share: exposed, of the step"),
    ]
    caption = "sums of a step, medians, of wait the mean; times in ms"
    return Table("Collectives of a step, by kind", columns, rows, caption)


def _counts(kind: KindFacts) -> str:
    """Return how many there are in a step, from the fewest to the most."""
    return f"{kind.fewest}-{kind.most}" if kind.fewest < kind.most else str(kind.count)


def unit_table(model: ModelFacts) -> Table:
    """Return a row for each unit's collective: sizes in MB, times in ms."""
    sends_other = any(b.wire_bytes != b.gradient_bytes for b in model.buckets)
    is_all_exposed = all(
        b.exposed and b.duration and b.exposed.p50 == b.duration.p50 for b in model.buckets
    )
    has_errors = any(b.error for b in model.buckets)
    payload = _shown("gradient_bytes")
    about_payload = "payload: a rank's parameters of a gather, gradients of a reduction"
    first = [
        _Cells(Column("no.", rank=6), lambda b: str(b.bucket)),
        _Cells(Column("unit", of="names"), lambda b: "" if b.unit is None else b.unit.name),
        _Cells(Column("collective", of="names"), _collective),
        payload._replace(column=replace(payload.column, name="payload", about=about_payload)),
        _shown("wire_bytes", rank=1 if sends_other else 10),
        _shown("duration_ns", rank=7 if is_all_exposed else 2, about=""),
        _p95(rank=8),
        *(_stage(name) for name in stages_of(model) if name != "wire"),
        _shown("wait_ns", about=_about_waits(model)),
    ]
    last = [
        _whom(model),
        _shown("exposed_ns"),
        _Cells(Column("busbw", _about_busbw(model), rank=5), _busbw_of),
        _shown("error_relative_l2", rank=0 if has_errors else 9),
    ]
    if not are_alike(model):
        column = Column("steps", "steps: which share of them has it", rank=3)
        last.append(_Cells(column, lambda b: percent(b.share_of_steps)))
    return _table(model, "Units", _with_others(model, first, last), "collectives of units")


def _collective(bucket: BucketFacts) -> str:
    if bucket.unit is None:
        return ""
    return bucket.unit.kind + (f" #{bucket.unit.turn + 1}" if bucket.unit.turn else "")


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
