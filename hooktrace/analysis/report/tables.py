"""The tables of a report, and which rows are folded.

ModelFacts --> bucket_table, of a sharded model with kind_table before it; rank_table
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from ...records import STAGES
from ...records.units import mb_per_second, megabytes, milliseconds, percent
from ..document.tree import Column, Table
from ..run.bucket_table import SHOWN
from .facts import BucketFacts, ModelFacts, RankFacts

MOST_ROWS = 32
"""Of a table; others are folded.  Of buckets twice as many."""

_T = TypeVar("_T")


def stages_of(model: ModelFacts) -> list[str]:
    """Return the stages that a model's buckets have, in the order in which they happen."""
    return [name for name in STAGES if any(name in b.stages for b in model.buckets)]


class _Cells(NamedTuple):
    """A column of the table of buckets, its text in a bucket's row, and the field that it shows."""

    column: Column
    text: Callable[[BucketFacts], str]
    fact: str = ""


def _shown(of: str, **otherwise: Any) -> _Cells:
    """Return a column of ``run/bucket_table.py``; ``otherwise``: other fields of its ``Column``."""
    how = next(how for column, how in SHOWN if column.name == of)
    column = replace(Column(how.heading, how.about, how.rank), **otherwise)
    return _Cells(column, lambda bucket: _text(of, getattr(bucket, how.fact)), how.fact)


def _text(name: str, fact: Any) -> str:
    """Return a fact as text, by the unit in its column's name; of a spread its median."""
    number = getattr(fact, "p50", fact)
    for unit, text in (("_ns", milliseconds), ("_bytes", megabytes), ("_share", percent)):
        if name.endswith(unit):
            return text(number)
    return "-" if number is None else f"{number:.2g}"


def _stage(name: str) -> _Cells:
    return _Cells(Column(name), lambda bucket: milliseconds(bucket.stages.get(name)))


def bucket_table(model: ModelFacts) -> Table:
    """Return a row for each bucket, or unit's collective: sizes in MB, times in ms, busbw in MB/s.

    Columns of ``run/bucket_table.py`` that have no place of their own stand after the wait, where
    any bucket has one.
    """
    cells = [*(_of_units if model.is_sharded else _of_buckets)(model)]
    placed = {one.fact for one in cells}
    after = 1 + next(i for i, one in enumerate(cells) if one.fact == "wait_ns")
    cells[after:after] = [
        _shown(column.name)
        for column, how in SHOWN
        if how.heading and how.fact not in placed
        if any(getattr(bucket, how.fact) is not None for bucket in model.buckets)
    ]
    shown, folded = split_buckets(model)
    why = "; shown are those that cost and wait most" if folded else ""
    ranks = f"{len(model.ranks)} ranks" if len(model.ranks) > 1 else "1 rank"
    return Table(
        f"{'Units' if model.is_sharded else 'Buckets'}: medians of {model.bucket_steps:,} steps on "
        f"{ranks}, {model.clock} times",
        [one.column for one in cells],
        [[one.text(bucket) for one in cells] for bucket in shown],
        caption=f"sizes in MB, times in ms{why}",
        folded=[[one.text(bucket) for one in cells] for bucket in folded],
        folded_name="collectives of units" if model.is_sharded else "buckets",
    )


def _of_buckets(model: ModelFacts) -> Iterator[_Cells]:
    yield _Cells(Column("bucket"), lambda b: str(b.bucket))
    yield _shown("gradient_bytes")
    yield _shown("wire_bytes")
    ready = Column("ready", "ready: after the step's first bucket", rank=8)
    yield _Cells(ready, lambda b: milliseconds(b.ready_ns))
    yield _shown("duration_ns")
    yield _p95(rank=5)
    yield from map(_stage, stages_of(model))
    yield _shown("wait_ns", about=_about_waits(model))
    yield _whom(model)
    share = Column("share", "share: of the exposed time, what the bucket adds", rank=2)
    yield _Cells(share, lambda b: percent(b.tail_share))
    yield _Cells(Column("busbw", _about_busbw(model), rank=1), _busbw_of)
    yield _shown("error_relative_l2")


def _of_units(model: ModelFacts) -> Iterator[_Cells]:
    sends_other = any(b.wire_bytes != b.gradient_bytes for b in model.buckets)
    is_all_exposed = all(
        b.exposed and b.duration and b.exposed.p50 == b.duration.p50 for b in model.buckets
    )
    about_payload = "payload: a rank's parameters of a gather, gradients of a reduction"
    yield _Cells(Column("no.", rank=6), lambda b: str(b.bucket))
    yield _Cells(Column("unit", of="names"), lambda b: "" if b.unit is None else b.unit.name)
    yield _Cells(Column("collective", of="names"), _collective)
    yield _shown("gradient_bytes", name="payload", about=about_payload)
    yield _shown("wire_bytes", rank=1 if sends_other else 10)
    yield _shown("duration_ns", rank=7 if is_all_exposed else 2, about="")
    yield _p95(rank=8)
    yield from (_stage(name) for name in stages_of(model) if name != "wire")
    yield _shown("wait_ns", about=_about_waits(model))
    yield _whom(model)
    yield _shown("exposed_ns")
    yield _Cells(Column("busbw", _about_busbw(model), rank=5), _busbw_of)
    yield _shown("error_relative_l2", rank=0 if any(b.error for b in model.buckets) else 9)
    if not model.are_alike:
        steps = Column("steps", "steps: which share of them has it", rank=3)
        yield _Cells(steps, lambda b: percent(b.share_of_steps))


def _collective(bucket: BucketFacts) -> str:
    if bucket.unit is None:
        return ""
    return bucket.unit.kind + (f" #{bucket.unit.turn + 1}" if bucket.unit.turn else "")


def _p95(rank: int) -> _Cells:
    column = Column("p95", rank=rank)
    return _Cells(column, lambda b: milliseconds(b.duration.p95 if b.duration else None))


def _about_waits(model: ModelFacts) -> str:
    """Return what a column of waits is, or why nothing is in it."""
    if model.wait_unknown is not None:
        return f"wait: {'none' if model.is_alone else 'not known'}, as {model.wait_unknown}"
    return "wait: straggler wait, the part of wire until the last rank is there, the mean"


def _whom(model: ModelFacts) -> _Cells:
    about = ""
    if any(bucket.waits_for for bucket in model.buckets):
        about = "waits for: who is last more often than by chance, and in which share of the steps"
    return _Cells(Column("waits for", about, rank=9), _waits_for)


def _waits_for(bucket: BucketFacts) -> str:
    whom = bucket.waits_for
    return "-" if whom is None else f"rank {whom.rank}, {percent(whom.share)}"


def _about_busbw(model: ModelFacts) -> str:
    if all(bucket.busbw_bytes_per_second is None for bucket in model.buckets):
        return "busbw (nccl-tests): none, or not known"
    if model.wait_unknown is None:
        return "busbw (nccl-tests) of transfers, in MB/s"
    return "busbw (nccl-tests) in MB/s, at least: over time on the wire, with what it waits"


def _busbw_of(bucket: BucketFacts) -> str:
    """Return the bus bandwidth of a bucket: the least that it is, where its wait is not known."""
    text = mb_per_second(bucket.busbw_bytes_per_second)
    is_least = bucket.transfer_ns is None and bucket.busbw_bytes_per_second is not None
    return f"≥ {text}" if is_least else text


def kind_table(model: ModelFacts) -> Table:
    """Return a row for each kind of collective: sizes in MB, times in ms, sums of a step."""
    period = model.period.p50 if model.period is not None else 0.0
    rows = []
    for one in model.kinds:
        share = one.exposed_ns / period if one.exposed_ns is not None and period else None
        count = f"{one.fewest}-{one.most}" if one.fewest < one.most else str(one.count)
        times = map(milliseconds, (one.duration_ns, one.wait_ns, one.exposed_ns))
        rows.append([one.name, count, megabytes(one.payload_bytes), *times, percent(share)])
    about = "payload: parameters that a rank gives to gathers, gradients to reductions, in MB"
    columns = [
        Column("collective", of="names"), Column("a step"), Column("payload", about),
        *map(Column, ("time", "wait", "exposed")), Column("share", "share: exposed, of the step"),
    ]  # fmt: skip
    caption = "sums of a step, medians, of wait the mean; times in ms"
    return Table("Collectives of a step, by kind", columns, rows, caption)


def rank_table(model: ModelFacts) -> Table:
    """Return a row for each rank: times in ms."""
    shown, folded = split_ranks(model)
    where = "at the unit where it is largest" if model.is_sharded else "of the last bucket"
    where += ", by the host's calls," if model.clock == "device" else ""
    why = "; shown are those that others wait for, and the furthest behind"
    columns = [
        Column("rank"), Column("host", of="names"),
        *map(Column, ("steps", "step", "exposed", "overlap")),
        Column("lag", f"lag: {where} after the first rank, where clocks are known"),
    ]  # fmt: skip
    return Table(
        "Ranks", columns, list(map(_rank_row, shown)), folded=list(map(_rank_row, folded)),
        caption=f"medians in ms{why if folded else ''}", folded_name="ranks",
    )  # fmt: skip


def _rank_row(r: RankFacts) -> list[str]:
    times = milliseconds(r.period_ns), milliseconds(r.exposed_ns)
    overlap, lag = percent(r.overlap), milliseconds(r.lag_ns)
    return [str(r.rank), r.host or "-", f"{r.steps:,}", *times, overlap, lag]


def split_ranks(model: ModelFacts) -> tuple[list[RankFacts], list[RankFacts]]:
    """Return the ranks to show and those to fold: shown are late ones, and the furthest behind."""
    late = {one.rank for one in model.late}
    late |= {b.waits_for.rank for b in model.buckets if b.waits_for is not None}
    return _split(
        model.ranks, MOST_ROWS, lambda r: (r.rank in late, r.lag_ns or 0.0, r.exposed_ns or 0.0)
    )


def split_buckets(model: ModelFacts) -> tuple[list[BucketFacts], list[BucketFacts]]:
    """Return the buckets to show and those to fold: shown are the last, and those that cost most.

    That is what training waits for each, then what each waits for its last rank.
    """

    def cost(b: BucketFacts) -> tuple[float, ...]:
        exposed = b.exposed.p50 if b.exposed else b.tail_share or 0.0
        return b.is_last, exposed, b.wait_ns or 0.0, b.transfer_ns or 0.0

    return _split(model.buckets, 2 * MOST_ROWS, cost)


def _split(
    rows: Sequence[_T], most: int, cost: Callable[[_T], tuple[float, ...]]
) -> tuple[list[_T], list[_T]]:
    """Return the rows that cost most, as many as are shown, and the others; both in their order."""
    by_cost = sorted(range(len(rows)), key=lambda i: cost(rows[i]), reverse=True)
    shown, folded = sorted(by_cost[:most]), sorted(by_cost[most:])
    return [rows[i] for i in shown], [rows[i] for i in folded]
