"""The two tables of a report as text, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ...records import STAGES
from ...records.units import mb_per_second, megabytes, milliseconds, percent
from .facts import BucketFacts, ModelFacts, RankFacts


class Columns(NamedTuple):
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
    times = [b.ready_ns, *((b.duration.p50, b.duration.p95) if b.duration else (None, None))]
    times += [*map(b.stages.get, stages), b.wait_ns]
    return [
        str(b.bucket),
        megabytes(b.gradient_bytes),
        megabytes(b.wire_bytes),
        *map(milliseconds, times),
        percent(b.tail_share),
        mb_per_second(b.busbw_bytes_per_second),
        "-" if b.error is None else f"{b.error.p50:.2g}",
    ]


def rank_columns(ranks: Iterable[RankFacts]) -> Columns:
    """Return a row for each rank: times in ms."""
    names = ["rank", "host", "steps", "step", "exposed", "overlap", "lag"]
    return Columns(names, [_rank_row(rank) for rank in ranks])


def _rank_row(r: RankFacts) -> list[str]:
    times = milliseconds(r.period_ns), milliseconds(r.exposed_ns)
    overlap, lag = percent(r.overlap), milliseconds(r.lag_ns)
    return [str(r.rank), r.host or "-", f"{r.steps:,}", *times, overlap, lag]
