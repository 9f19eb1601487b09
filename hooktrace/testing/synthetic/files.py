"""The record files of a made-up job."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path

from ...records.codec import RecordEncoder
from ...records.files import record_path
from .job import SyntheticJob
from .simulation import simulate


def write_job(job: SyntheticJob, logdir: Path, *, processes: int = 1) -> int:
    """Write each rank's record file where an exporter would; return how many stages are in them."""
    record_path(logdir, 0).parent.mkdir(parents=True, exist_ok=True)
    if processes < 2:
        return _write(job, logdir, range(job.ranks))
    shares = [range(i, job.ranks, processes) for i in range(processes)]
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        return sum(pool.map(_write, [job] * processes, [logdir] * processes, shares))


def _write(job: SyntheticJob, logdir: Path, ranks: Sequence[int]) -> int:
    stages = 0
    with ExitStack() as stack:
        writers = [
            (rank, RecordEncoder(), stack.enter_context(record_path(logdir, rank).open("wb")))
            for rank in ranks
        ]
        for rank, encoder, file in writers:
            file.write(encoder.record(job.run(rank)) + encoder.record(job.layout()))
            file.write(b"".join(map(encoder.record, job.clock_records(rank))))
        for now in simulate(job):
            for rank, encoder, file in writers:
                step, buckets = now.completed(rank)
                stages += sum(len(bucket.stages) for bucket in buckets)
                file.write(encoder.buckets(buckets) + encoder.record(step))
                file.write(b"".join(map(encoder.record, now.events(rank))))
        for _, encoder, file in writers:
            file.write(encoder.losses({}, closed=True))
    return stages
