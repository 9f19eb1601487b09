"""A trace file that is left on: its size, its memory and its time over a million steps.

Made-up steps of four buckets go to the exporter in batches as the drain makes them, with pauses of
a noisy 10 ms in their records: a step in 200 is slow, one in 100 probed.  Only the exporter's own
time is counted, in processor time, which a busy machine does not stretch.  It runs in a process of
its own.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from ...exporters import RecordFileExporter
from ...records import Batch, BucketRecord, ErrorRecord, RunInfo, Stage, StepRecord
from .memory import resident_bytes
from .ranks import run_ranks
from .table import Row, row_of

__all__ = ["run"]

_BUCKETS = 4
_STEPS_PER_BATCH = 8
_SAMPLES = 100
_MAX_BYTES = 256 << 20
_MIB = 2**20
_MS = 1_000_000
_ERROR = ErrorRecord(
    relative_l2=0.25, cosine=0.97, max_absolute=1.0, flipped_share=0.01, reference_l2=4.0
)


_Completed = tuple[StepRecord, tuple[BucketRecord, ...]]


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
    what = f"trace files of {steps:,} steps of {_BUCKETS} buckets"
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
    source = random.Random(0)
    run = RunInfo(
        run_id="bench",
        rank=0,
        local_rank=0,
        world_size=2,
        host="localhost",
        pid=os.getpid(),
        torch_version="",
        backend="gloo",
        host_anchor_ns=0,
        wall_anchor_ns=time.time_ns(),
    )
    number, start_ns = 0, 0
    while True:
        steps = []
        for _ in range(_STEPS_PER_BATCH):
            slow = 3 if source.random() < 1 / 200 else 1
            period_ns = slow * round(source.gauss(10 * _MS, 0.5 * _MS))
            start_ns += period_ns
            steps.append(_step(number, start_ns, period_ns))
            number += 1
        yield Batch(run=run, steps=tuple(steps))


def _step(
    number: int, start_ns: int, period_ns: int
) -> tuple[StepRecord, tuple[BucketRecord, ...]]:
    buckets = [_bucket(number, i, start_ns + i * _MS) for i in range(_BUCKETS)]
    if number % 100 == 0:
        buckets[0] = replace(buckets[0], error=_ERROR)
    record = StepRecord(
        model="model0",
        hook="fp16_compress_hook",
        generation=1,
        step=number,
        clock="host",
        first_ready_ns=start_ns,
        last_ready_ns=buckets[-1].ready_ns,
        done_ns=buckets[-1].done_ns,
        busy_ns=buckets[-1].done_ns - start_ns,
        exposed_ns=2 * _MS,
        wire_busy_ns=4 * _MS,
        period_ns=period_ns if number else None,
        gradient_bytes=_BUCKETS * (8 << 20),
        wire_bytes=_BUCKETS * (4 << 20),
        bus_bytes=float(_BUCKETS * (4 << 20)),
        bucket_count=_BUCKETS,
    )
    return record, tuple(buckets)


def _bucket(step: int, index: int, ready_ns: int) -> BucketRecord:
    marks = [ready_ns, ready_ns + _MS // 4, ready_ns + _MS // 2, ready_ns + 3 * _MS // 2]
    done_ns = ready_ns + 2 * _MS
    return BucketRecord(
        model="model0",
        hook="fp16_compress_hook",
        generation=1,
        step=step,
        bucket=index,
        is_last=index == _BUCKETS - 1,
        dtype="float32",
        device_type="cpu",
        numel=2 << 20,
        gradient_bytes=8 << 20,
        parameter_count=6,
        ready_ns=ready_ns,
        launched_ns=ready_ns + _MS // 4,
        done_ns=done_ns,
        stages=(
            Stage(name="compress", start_ns=marks[0], end_ns=marks[1]),
            Stage(name="queue", start_ns=marks[1], end_ns=marks[2], derived=True),
            Stage(
                name="wire",
                start_ns=marks[2],
                end_ns=marks[3],
                derived=True,
                collective="all_reduce",
                wire_bytes=4 << 20,
                dtype="float16",
            ),
            Stage(name="decompress", start_ns=marks[3], end_ns=done_ns),
        ),
        wire_bytes=4 << 20,
        bus_bytes=float(4 << 20),
    )
