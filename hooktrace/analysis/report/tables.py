"""The two tables of a report as text, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...records import STAGES
from ...records.units import megabytes, milliseconds, percent
from .facts import BucketFacts, ModelFacts, RankFacts


@dataclass(frozen=True, slots=True)
class Columns:
    """A table: names of the columns, and rows of as many cells."""

    names: list[str]
    rows: list[list[str]]


def stages_of(model: ModelFacts) -> list[str]:
    """Return the stages that a model's buckets have, in the order in which they happen."""
    return [name for name in STAGES if any(name in b.stages for b in model.buckets)]


def bucket_columns(model: ModelFacts) -> Columns:
    """Return a row for each bucket: sizes in MB, times in ms, busbw in MB/s."""
    stages = stages_of(model)
    names = ["bucket", "gradients", "sent", "ready", "time", "p95", *stages]
    names += ["wait", "tail", "busbw", "error"]
    return Columns(names, [_bucket_row(bucket, stages) for bucket in model.buckets])


def _bucket_row(b: BucketFacts, stages: list[str]) -> list[str]:
    busbw = b.busbw_bytes_per_second
    return [
        str(b.bucket),
        megabytes(b.gradient_bytes),
        megabytes(b.wire_bytes),
        milliseconds(b.ready_ns),
        milliseconds(b.duration.p50 if b.duration else None),
        milliseconds(b.duration.p95 if b.duration else None),
        *(milliseconds(b.stages.get(name)) for name in stages),
        milliseconds(b.wait_ns),
        percent(b.tail_share),
        "-" if busbw is None else f"{busbw / 1e6:,.0f}",
        "-" if b.error is None else f"{b.error.p50:.2g}",
    ]


def rank_columns(ranks: Sequence[RankFacts]) -> Columns:
    """Return a row for each rank: times in ms."""
    return Columns(
        ["rank", "host", "steps", "step", "exposed", "overlap", "lag"],
        [
            [
                str(r.rank),
                r.host or "-",
                f"{r.steps:,}",
                milliseconds(r.period_ns),
                milliseconds(r.exposed_ns),
                percent(r.overlap),
                milliseconds(r.lag_ns),
            ]
            for r in ranks
        ],
    )
