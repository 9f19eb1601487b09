"""A run too large for one machine's memory: 1,024 ranks of 10,000 steps, summed up rank by rank.

    made-up job of nine ranks --hard links--> files of 1,024 --summary_of--> one worker, then two

So that 16 GB of files need 0.14 on the disk, ranks share their bodies: a rank has a first part of
its own, which says who it is, and its second part is a link to one of seven.  Rank 0, whose clock
is the reference, and rank 17, which is late, have one alone.  Reading costs what 1,024 files cost
that are in the cache.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace as changed
from pathlib import Path

from msgspec.structs import replace

from ...analysis.summaries import report_of
from ...analysis.summaries.command import summary_of
from ...records.codec import RecordEncoder
from ...records.files import part_path, record_path
from ...testing.synthetic import SyntheticJob, write_job
from .table import Row

_SHARED = 7
_LATE = 17
_JOB = SyntheticJob(
    ranks=_SHARED + 2, steps=10_000, bucket_bytes=(4_000_000,) * 4, late_ms={_SHARED + 1: 9.0},
    error=0.02, error_every=100,
)  # fmt: skip
_BUDGET_MIB = 256.0


def summaries(*, quick: bool) -> Iterator[Row]:
    """Yield the rows; ``quick``: 128 ranks of 1,000 steps.  Raises ``RuntimeError`` if wrong."""
    job, ranks = (changed(_JOB, steps=1000), 128) if quick else (_JOB, 1024)
    with tempfile.TemporaryDirectory() as folder:
        write_linked(job, ranks, Path(folder))
        one, least = _timed(Path(folder), "local:1")
        two, most = _timed(Path(folder), "local:2")
    what = f"summaries of {ranks:,} ranks x {job.steps:,} steps x 4 buckets: one worker"
    yield Row(what, [one], "s")
    yield Row("the same: time of two workers over time of one", [two / one], "", budget=0.6)
    yield Row("the same: most memory of a worker", [max(least, most)], "MiB", budget=_BUDGET_MIB)


def _timed(logdir: Path, on: str) -> tuple[float, float]:
    """Return the seconds from files to findings, and the MiB that a worker had at most."""
    start = time.perf_counter()
    summary, job = summary_of(logdir, on=on)
    found = [one for one in report_of(summary, job).models[0].findings if one.rank is not None]
    took = time.perf_counter() - start
    if [one.rank for one in found] != [_LATE]:
        raise RuntimeError(f"rank {_LATE} alone is late, and the report says {found}")
    return took, max(summary.memory.values()) / 2**20


def write_linked(job: SyntheticJob, ranks: int, logdir: Path) -> None:
    """Write the record files of many ranks, which share the bodies of a job's ranks."""
    bodies = logdir / "bodies"
    write_job(job, bodies)
    record_path(logdir, 0).parent.mkdir(parents=True)
    for rank in range(ranks):
        body = {0: 0, _LATE: _SHARED + 1}.get(rank, 1 + rank % _SHARED)
        encoder = RecordEncoder()
        run = replace(
            job.run(body), rank=rank, local_rank=rank % 8, world_size=ranks,
            host=f"host-{rank // 8}",
        )  # fmt: skip
        head = encoder.record(run) + encoder.record(job.layout())
        path = record_path(logdir, rank)
        path.write_bytes(head)
        os.link(_without_run(record_path(bodies, body)), part_path(path, 1))


def _without_run(path: Path) -> Path:
    """Return the file of a body without its first line, which says whose it is."""
    made = path.with_suffix(".body")
    if not made.exists():
        made.write_bytes(path.read_bytes().partition(b"\n")[2])
    return made
