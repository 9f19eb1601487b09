"""Record files of a long made-up run, for measurements of what reads them.

Every rank has the same steps up to noise; every 97th step is slow, rank 2 is late in every fifth.
"""

from __future__ import annotations

import random
from pathlib import Path

from ...records import (
    BucketLayout,
    BucketRecord,
    ClockRecord,
    LayoutRecord,
    RunInfo,
    Stage,
    StepRecord,
)
from ...records.codec import RecordEncoder
from ...records.files import record_path

__all__ = ["write_run"]

_STEP_NS = 50_000_000
_STAGES = (("compress", 0.1), ("queue", 0.3), ("wire", 0.5), ("decompress", 0.1))


def write_run(logdir: Path, *, ranks: int = 8, steps: int = 1250, buckets: int = 25) -> int:
    """Write a file for each rank under ``logdir``; returns the number of stages in all of them."""
    for rank in range(ranks):
        path = record_path(logdir, rank)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            encoder = RecordEncoder()
            file.write(encoder.record(_run(rank, ranks)))
            file.write(encoder.record(_layout(buckets)))
            if rank:
                for second in range(0, steps * _STEP_NS, 10**9):
                    file.write(encoder.record(_clock(10**9 + second)))
            noise = random.Random(rank)
            for number in range(steps):
                step, records = _step(number, buckets, rank, noise)
                file.write(encoder.buckets(records))
                file.write(encoder.record(step))
            file.write(encoder.losses({}, closed=True))
    return ranks * steps * buckets * len(_STAGES)


def _run(rank: int, ranks: int) -> RunInfo:
    return RunInfo(
        run_id="long", rank=rank, local_rank=rank, world_size=ranks, host="made-up", pid=1 + rank,
        torch_version="none", backend="gloo", host_anchor_ns=10**9,
        wall_anchor_ns=1_700_000_000 * 10**9,
    )  # fmt: skip


def _clock(time_ns: int) -> ClockRecord:
    return ClockRecord(
        time_ns=time_ns, offset_ns=0, uncertainty_ns=20_000, round_trip_ns=40_000, pings=32
    )


def _layout(buckets: int) -> LayoutRecord:
    return LayoutRecord(
        model="net", hook="fp16_compress_hook", generation=1, step=0, time_ns=10**9,
        buckets=tuple(
            BucketLayout(
                bucket=i, dtype="float32", device_type="cpu", numel=10**6, gradient_bytes=4 * 10**6,
                parameters=((f"layer{i}.weight", (1000, 999)), (f"layer{i}.bias", (1000,))),
            )
            for i in range(buckets)
        ),
    )  # fmt: skip


def _step(
    number: int, count: int, rank: int, noise: random.Random
) -> tuple[StepRecord, tuple[BucketRecord, ...]]:
    start_ns = 10**9 + number * _STEP_NS
    start_ns += 2_000_000 if rank == 2 and number % 5 == 0 else 0
    slow = 3 if number % 97 == 96 else 1
    apart_ns = _STEP_NS // (2 * count)
    records = tuple(
        _bucket(number, i, count, start_ns + i * apart_ns, int(noise.uniform(2e6, 6e6)) * slow)
        for i in range(count)
    )
    done_ns = max(b.done_ns for b in records)
    step = StepRecord(
        model="net", hook="fp16_compress_hook", generation=1, step=number, clock="host",
        first_ready_ns=start_ns, last_ready_ns=records[-1].ready_ns, done_ns=done_ns,
        busy_ns=done_ns - start_ns, exposed_ns=done_ns - records[-1].ready_ns,
        wire_busy_ns=(done_ns - start_ns) // 2, period_ns=_STEP_NS if number else None,
        gradient_bytes=count * 4 * 10**6, wire_bytes=count * 2 * 10**6,
        bus_bytes=float(count * 2 * 10**6), bucket_count=count,
    )  # fmt: skip
    return step, records


def _bucket(step: int, bucket: int, count: int, ready_ns: int, length_ns: int) -> BucketRecord:
    stages, at_ns = [], ready_ns
    for name, share in _STAGES:
        end_ns = at_ns + int(length_ns * share)
        is_wire = name == "wire"
        stages.append(
            Stage(
                name=name, start_ns=at_ns, end_ns=end_ns, derived=name == "queue",
                collective="all_reduce" if is_wire else None,
                wire_bytes=2 * 10**6 if is_wire else None, dtype="float16" if is_wire else None,
            )
        )  # fmt: skip
        at_ns = end_ns
    return BucketRecord(
        model="net", hook="fp16_compress_hook", generation=1, step=step, bucket=bucket,
        is_last=bucket == count - 1, dtype="float32", device_type="cpu", numel=10**6,
        gradient_bytes=4 * 10**6, parameter_count=2, ready_ns=ready_ns,
        launched_ns=ready_ns + length_ns // 8, done_ns=at_ns, stages=tuple(stages),
        wire_bytes=2 * 10**6, bus_bytes=2e6,
    )  # fmt: skip
