"""What is left on: a tracer over a million hook calls, record files over a million steps.

*Tracer*: the process's resident size.  One model of 25 fake buckets with a staged hook, whose
records are the largest.  Its collectives arrive at once, so that the calls come as fast as the hot
path allows; every 400 steps wait for the drain.

*Record files*: their size, memory and time.  Steps of a made-up job of four buckets go to the
exporter in batches as the drain makes them, about 10 ms apart by their records: a step in 200 is
slow, one in 100 checked.  Only the exporter's own time is counted, in processor time, which a busy
machine does not stretch.

Each runs in a process of its own, where nothing else allocates.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hooktrace.commands.bench.harness import done
from hooktrace.commands.bench.table import Row
from hooktrace.exporters import RecordFileExporter
from hooktrace.records import Batch
from hooktrace.staging.collectives import Operation
from hooktrace.staging.hook import staged
from hooktrace.testing.ranks import run_ranks
from hooktrace.testing.synthetic import SyntheticJob, simulate
from hooktrace.tracing.trace import trace
from hooktrace.tracing.tracer import Tracer

from .harness import STATM, fake_buckets, resident_mib

_MIB = 2**20
_BUCKETS = 25
_STEPS_BETWEEN_SAMPLES = 400
_STEPS_PER_BATCH = 8
_SAMPLES = 100
_MAX_BYTES = 256 << 20
_JOB = SyntheticJob(
    ranks=1, steps=1 << 40, hook="fp16_compress_hook", bucket_bytes=(8 << 20,) * 4,
    wire_share=0.5, wire_dtype="float16", forward_ms=5.0, backward_ms=3.0, jitter_ms=1.0,
    codec_ms=0.25, bytes_per_second=4e9, slow_every=200, error=0.25, error_every=100,
)  # fmt: skip


def memory(*, quick: bool) -> Iterator[Row]:
    """Yield the growth since the tracer was made, and over the second half of the calls."""
    calls = 100_000 if quick else 1_000_000
    if not STATM.exists():
        return
    (sizes,) = run_ranks(1, _sizes_mib, calls)
    half = sizes[len(sizes) // 2 :]
    what = f"memory added by a tracer over {calls:,} hook calls"
    yield Row(what, sizes, "MiB", budget=32.0)
    what, note = "the same, growth over the second half", "flat: at most 1 MiB of allocator's noise"
    yield Row(what, [max(half) - half[0]], "MiB", budget=1.0, note=note)


def _sizes_mib(calls: int) -> list[float]:
    """Return MiB above the size before the tracer was made, sampled along the calls."""
    buckets = fake_buckets(_BUCKETS)
    before = resident_mib()
    sizes = []
    with Tracer() as tracer:
        hook = trace(_local_hook, tracer=tracer)
        for step in range(calls // _BUCKETS):
            for future in [hook(None, bucket) for bucket in buckets]:
                future.wait()  # as DDP does at the end of a backward pass
            if step % _STEPS_BETWEEN_SAMPLES == 0:
                tracer.flush()
                sizes.append(resident_mib() - before)
        if tracer.losses():
            raise RuntimeError(f"the tracer lost records: {tracer.losses()}")
    return sizes


class _Instant(Operation):
    """An all-reduce that is over when it starts."""

    kind = "all_reduce"

    def start(self) -> Any:
        """Return a future that is done."""
        return done(self.tensor)

    def result(self, future: Any) -> torch.Tensor:
        """Return the tensor as it was."""
        return self.tensor


@staged
def _local_hook(state: Any, bucket: Any) -> Any:
    del state
    return (yield _Instant(bucket.buffer()))


def record_files(*, quick: bool) -> Iterator[Row]:
    """Yield the largest size, the growth of memory, and the time per step and its growth."""
    steps = 100_000 if quick else 1_000_000
    if not STATM.exists():
        return
    (samples,) = run_ranks(1, _file_samples, steps, deadline_s=1800)
    file_mib, resident_mib, step_us = np.array(samples).T
    half = _SAMPLES // 2
    times, growth = step_us[half:], resident_mib[half:] - resident_mib[half]
    # What all steps of a short job are kept in is no part of what becomes of a long one.
    usual = np.median(step_us[1:half])
    what = f"record files of {steps:,} steps of {len(_JOB.bucket_bytes)} buckets: largest size"
    yield Row(what, [float(file_mib.max())], "MiB", budget=_MAX_BYTES / _MIB)
    what = "the same, memory's growth over the second half"
    yield Row(what, [float(growth.max())], "MiB", budget=1.0)
    yield Row("the same, processor time in the exporter per step", times.tolist(), "µs")
    what = "the same, second half over first half"
    yield Row(what, (times / usual).tolist(), "ratio", budget=1.1)


def _file_samples(steps: int) -> list[tuple[float, float, float]]:
    """Return, along the steps: MiB of files, MiB of memory, µs of processor time a step."""
    found = []
    with tempfile.TemporaryDirectory(prefix="hooktrace-bench-") as directory:
        exporter = RecordFileExporter(directory, max_bytes=_MAX_BYTES)
        batches = _batches()
        for _ in range(_SAMPLES):
            spent_ns = 0
            count = steps // _SAMPLES // _STEPS_PER_BATCH
            for batch in islice(batches, count):
                start_ns = time.thread_time_ns()
                exporter.export(batch)
                spent_ns += time.thread_time_ns() - start_ns
            size = sum(path.stat().st_size for path in Path(directory).rglob("*.jsonl"))
            step_us = spent_ns / 1000 / (count * _STEPS_PER_BATCH)
            found.append((size / _MIB, resident_mib(), step_us))
        exporter.close()
    return found


def _batches() -> Iterator[Batch]:
    steps = (step.completed(0) for step in simulate(_JOB))
    yield Batch(run=_JOB.run(0), records=(_JOB.layout(),))
    while True:
        yield Batch(run=_JOB.run(0), steps=tuple(islice(steps, _STEPS_PER_BATCH)))
