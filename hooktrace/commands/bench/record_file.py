"""Record files that are left on: their size, memory and time over a million steps.

Steps of a made-up job of four buckets go to the exporter in batches as the drain makes them, about
10 ms apart by their records: a step in 200 is slow, one in 100 probed.  Only the exporter's own
time is counted, in processor time, which a busy machine does not stretch.  It runs in a process of
its own.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from ...exporters import RecordFileExporter
from ...records import Batch
from ...testing.synthetic import SyntheticJob, simulate
from .memory import resident_bytes
from .ranks import run_ranks
from .table import Row, row_of

_BUCKETS = 4
_STEPS_PER_BATCH = 8
_SAMPLES = 100
_MAX_BYTES = 256 << 20
_MIB = 2**20
_JOB = SyntheticJob(
    ranks=1, steps=1 << 40, hook="fp16_compress_hook", bucket_bytes=(8 << 20,) * _BUCKETS,
    wire_share=0.5, wire_dtype="float16", forward_ms=5.0, backward_ms=3.0, jitter_ms=1.0,
    codec_ms=0.25, bytes_per_second=4e9, slow_every=200, error=0.25, error_every=100,
)  # fmt: skip


class _Sample(NamedTuple):
    file_mib: float
    resident_mib: float
    step_us: float


def run(*, quick: bool) -> list[Row]:
    """Return the largest size, the growth of memory, and the time per step and its growth."""
    steps = 100_000 if quick else 1_000_000
    if not Path("/proc/self/statm").exists():
        return []
    (taken,) = run_ranks(1, _measure, steps, deadline_s=1800)
    samples: list[_Sample] = [_Sample(*numbers) for numbers in taken]
    # What all steps of a short job are kept in is no part of what becomes of a long one.
    first, second = samples[1 : len(samples) // 2], samples[len(samples) // 2 :]
    times = [s.step_us for s in second]
    usual = row_of("", [s.step_us for s in first], "").value
    what = f"record files of {steps:,} steps of {_BUCKETS} buckets"
    return [
        row_of(
            f"{what}: largest size",
            [max(s.file_mib for s in samples)],
            "MiB",
            budget=_MAX_BYTES / _MIB,
        ),
        row_of(
            "the same, memory's growth over the second half",
            [max(s.resident_mib for s in second) - second[0].resident_mib],
            "MiB",
            budget=1.0,
        ),
        row_of("the same, processor time in the exporter per step", times, "µs"),
        row_of(
            "the same, second half over first half", [t / usual for t in times], "ratio", budget=1.1
        ),
    ]


def _measure(steps: int) -> list[tuple[float, float, float]]:
    """Return the samples, as plain tuples, along the steps."""
    found = []
    with tempfile.TemporaryDirectory(prefix="hooktrace-bench-") as directory:
        exporter = RecordFileExporter(directory, max_bytes=_MAX_BYTES)
        folder = Path(directory, "plugins", "hooktrace")
        batches = _batches()
        for _ in range(_SAMPLES):
            spent_ns = 0
            count = steps // _SAMPLES // _STEPS_PER_BATCH
            for _ in range(count):
                batch = next(batches)
                start_ns = time.thread_time_ns()
                exporter.export(batch)
                spent_ns += time.thread_time_ns() - start_ns
            size = sum(entry.stat().st_size for entry in os.scandir(folder))
            step_us = spent_ns / 1000 / (count * _STEPS_PER_BATCH)
            found.append((size / _MIB, resident_bytes() / _MIB, step_us))
        exporter.close()
    return found


def _batches() -> Iterator[Batch]:
    steps = (step.completed(0) for step in simulate(_JOB))
    yield Batch(run=_JOB.run(0), records=(_JOB.layout(),))
    while True:
        yield Batch(run=_JOB.run(0), steps=tuple(islice(steps, _STEPS_PER_BATCH)))
