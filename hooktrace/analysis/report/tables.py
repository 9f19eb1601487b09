"""The tables of a report, of buckets and of ranks, and which rows are folded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from ...records import STAGES
from ...records.units import mb_per_second, megabytes, milliseconds, percent
from ..document.tree import Column, Table
from ..run.tables import SHOWN
from .facts import BucketFacts, ModelFacts, RankFacts

MOST_ROWS = 32
"""Of a table; others are folded.  Of buckets twice as many."""

_T = TypeVar("_T")
_Cells = tuple[Column, Callable[[BucketFacts], str]]
"""A column of the table of buckets, and its text in a bucket's row."""

_PLACED = ("gradient_bytes", "wire_bytes", "duration_ns", "wait_ns", "error_relative_l2")
"""Columns of ``run/tables.py`` that have a place of their own."""


def stages_of(model: ModelFacts) -> list[str]:
    """Return the stages that a model's buckets have, in the order in which they happen."""
    return [name for name in STAGES if any(name in b.stages for b in model.buckets)]


def bucket_table(model: ModelFacts) -> Table:
    """Return a row for each bucket, or unit's collective: sizes in MB, times in ms, busbw in MB/s.

    The last bucket is shown, and those for which training waits longest, then those that wait
    longest for their last rank.
    """

    def cost(b: BucketFacts) -> tuple[float, ...]:
        exposed = b.exposed.p50 if b.exposed else b.exposed_share or 0.0
        return b.is_last, exposed, b.wait_ns or 0.0, b.transfer_ns or 0.0

    cells = [*_cells(model)]
    shown, folded = _split(model.buckets, 2 * MOST_ROWS, cost)
    why = "; shown are those that cost and wait most" if folded else ""
    return Table(
        f"{'Units' if model.is_sharded else 'Buckets'}: medians of {model.bucket_steps:,} steps on "
        f"{model.on_ranks}, {model.clock} times",
        [column for column, _ in cells],
        [[text(bucket) for _, text in cells] for bucket in shown],
        caption=f"sizes in MB, times in ms{why}",
        folded=[[text(bucket) for _, text in cells] for bucket in folded],
        folded_name="collectives of units" if model.is_sharded else "buckets",
    )


def _cells(model: ModelFacts) -> Iterator[_Cells]:
    """Yield the columns; what is declared and has no place of its own stands after the waits."""
    sharded, stages = model.is_sharded, stages_of(model)
    if sharded:
        yield Column("no.", rank=6), lambda b: str(b.bucket)
        yield Column("unit", of="names"), lambda b: b.unit.name if b.unit else ""
        yield Column("collective", of="names"), _collective
        about = "payload: a rank's parameters of a gather, gradients of a reduction"
        yield _shown("gradient_bytes", name="payload", about=about)
        yield _shown("wire_bytes", rank=1)
        yield _shown("duration_ns", rank=2, about="")
        stages = [name for name in stages if name != "wire"]
    else:
        yield Column("bucket"), lambda b: str(b.bucket)
        yield _shown("gradient_bytes")
        yield _shown("wire_bytes")
        ready = Column("ready", "ready: after the step's first bucket", rank=8)
        yield ready, lambda b: milliseconds(b.ready_ns)
        yield _shown("duration_ns")
    yield Column("p95", rank=5), lambda b: milliseconds(b.duration.p95 if b.duration else None)
    yield from map(_stage, stages)
    about = "wait: straggler wait, the part of wire until the last rank is there, the mean"
    if model.wait_unknown is not None:
        about = f"wait: not known, as {model.wait_unknown}"
    yield _shown("wait_ns", about=about)
    for column, how in SHOWN:
        is_known = any(getattr(bucket, how.fact) is not None for bucket in model.buckets)
        if how.heading and column.name not in _PLACED and is_known:
            yield _shown(column.name)
    if not sharded:
        share = Column("share", "share: of the exposed time, what the bucket adds", rank=2)
        yield share, lambda b: percent(b.exposed_share)
    busbw = Column("busbw", "busbw (nccl-tests) of transfers, in MB/s", rank=1)
    yield busbw, lambda b: mb_per_second(b.busbw_bytes_per_second)
    yield _shown("error_relative_l2")
    if not model.are_alike:
        steps = Column("steps", "steps: which share of them has it", rank=3)
        yield steps, lambda b: percent(b.share_of_steps)


def _stage(name: str) -> _Cells:
    return Column(name), lambda bucket: milliseconds(bucket.stages.get(name))


def _shown(of: str, **otherwise: Any) -> _Cells:
    """Return a column of ``run/tables.py``; ``otherwise``: other fields of its ``Column``."""
    how = next(how for column, how in SHOWN if column.name == of)
    column = replace(Column(how.heading, how.about, how.rank), **otherwise)
    return column, lambda bucket: _text(of, getattr(bucket, how.fact))


def _text(name: str, fact: Any) -> str:
    """Return a fact as text, by the unit in its column's name; of a spread its median."""
    number = getattr(fact, "p50", fact)
    for unit, text in (("_ns", milliseconds), ("_bytes", megabytes), ("_share", percent)):
        if name.endswith(unit):
            return text(number)
    return "-" if number is None else f"{number:.2g}"


def _collective(bucket: BucketFacts) -> str:
    unit = bucket.unit
    return unit.kind + (f" #{unit.repeat + 1}" if unit.repeat else "") if unit else ""


def rank_table(model: ModelFacts) -> Table:
    """Return a row for each rank, times in ms; shown are late ones, and the furthest behind."""
    late = {one.rank for one in model.late}
    shown, folded = _split(
        model.ranks,
        MOST_ROWS,
        lambda r: (r.rank in late, r.arrival_delay_ns or 0.0, r.exposed_ns or 0.0),
    )
    where = "at the unit where it is largest" if model.is_sharded else "of the last bucket"
    where += ", by the host's calls," if model.clock == "device" else ""
    why = "; shown are those that others wait for, and the furthest behind"
    columns = [
        Column("rank"), Column("host", of="names"),
        *map(Column, ("steps", "step", "exposed", "overlap")),
        Column("delay", f"delay: {where} after the first rank, where clocks are known"),
    ]  # fmt: skip
    return Table(
        "Ranks", columns, list(map(_rank_row, shown)), folded=list(map(_rank_row, folded)),
        caption=f"each rank's own medians, in ms{why if folded else ''}", folded_name="ranks",
    )  # fmt: skip


def _rank_row(r: RankFacts) -> list[str]:
    period, exposed, delay = map(milliseconds, (r.period_ns, r.exposed_ns, r.arrival_delay_ns))
    return [str(r.rank), r.host or "-", f"{r.steps:,}", period, exposed, percent(r.overlap), delay]


def _split(
    rows: Sequence[_T], most: int, cost: Callable[[_T], tuple[float, ...]]
) -> tuple[list[_T], list[_T]]:
    """Return the rows that cost most, as many as are shown, and the others; both in their order."""
    by_cost = sorted(range(len(rows)), key=lambda i: cost(rows[i]), reverse=True)
    return [rows[i] for i in sorted(by_cost[:most])], [rows[i] for i in sorted(by_cost[most:])]
