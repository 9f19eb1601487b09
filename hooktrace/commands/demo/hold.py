"""Serves what a finished job recorded, so that a scraper that comes late still finds it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from ...exporters import PrometheusExporter
from ...records import Batch, BucketRecord, StepRecord
from ...records.content import RankRecords
from ...records.files import find_records, record_path
from ...records.reader import read_parts
from .options import DemoOptions


def hold(console: Console, options: DemoOptions) -> None:
    """Serve each rank's metrics, read back from its record file, until Ctrl-C or SIGTERM."""
    ended = threading.Event()
    files = find_records(options.out)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with ExitStack() as stack:
        for rank in range(options.ranks):
            exporter = PrometheusExporter(
                options.port, local_rank=rank, file_sd=options.out / "prometheus"
            )
            stack.callback(exporter.close)
            exporter.export(read_batch(files.get(rank, [record_path(options.out, rank)])))
            console.print(f"holding the metrics of rank {rank}: {exporter.url}", soft_wrap=True)
        console.print("Ctrl-C ends it")
        ended.wait()


def read_batch(paths: Sequence[Path]) -> Batch:
    """Return all records of a rank's record files as one batch.

    Raises ``OSError`` for a file that cannot be opened, ``ValueError`` where no run is in them.
    """
    records = read_parts(paths)
    if records.run is None:
        raise ValueError(f"{paths[0]} holds no run; run the demo again")
    return Batch(
        run=records.run,
        steps=tuple((step, tuple(buckets)) for step, buckets in _by_step(records)),
        records=(*records.layouts, *records.anomalies),
    )


def _by_step(records: RankRecords) -> Iterator[tuple[StepRecord, list[BucketRecord]]]:
    buckets: dict[tuple[str, int], list[BucketRecord]] = {}
    for bucket in records.buckets:
        buckets.setdefault((bucket.model, bucket.step), []).append(bucket)
    for step in records.steps:
        yield step, buckets.get((step.model, step.step), [])
