"""The two tables of a report as text, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ...records import STAGES
from ...records.units import mb_per_second, megabytes, milliseconds, ms, percent
from .facts import BucketFacts, ModelFacts, RankFacts


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
        return f"wait: not known, as {model.wait_unknown}"
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
