"""Record files of a made-up job, of which one knows what a report must find.

    SyntheticJob --simulate--> times of one step on all ranks --records--> RecordEncoder --> files

A collective starts when its last rank has launched it and one of the backend's workers is free, and
takes a latency plus its bytes over the bandwidth.  So a late rank makes all others wait, a last
bucket that is large is exposed, and small buckets are mostly latency.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ...records import (
    AnomalyRecord,
    BucketLayout,
    BucketRecord,
    ClockRecord,
    ErrorRecord,
    LayoutRecord,
    RunInfo,
    Stage,
    StepRecord,
)
from ...records.codec import RecordEncoder
from ...records.intervals import bus_bytes, exposed_ns, union_ns

__all__ = ["SyntheticJob", "write_job"]

_MS = 1_000_000
_WALL_NS = 1_795_000_000 * 10**9
_MODEL = "synthetic"
Times = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticJob:
    """What the job is like.

    ``bucket_bytes``: gradient bytes of each bucket, in order; ``wire_share`` of them is sent.
    ``backward_ms``: from the first to the last bucket.  ``late_ms``: by rank, how much later than
    the others it is from bucket ``late_from`` on.  ``codec_ms``: compress, and again decompress, of
    a bucket.  ``slow_every``: each so many steps one bucket's collective takes ten times as long.
    ``clocks``: whether the ranks measured their clocks, which are a second apart.
    """

    ranks: int = 4
    steps: int = 50
    bucket_bytes: tuple[int, ...] = (4_000_000,) * 8
    wire_share: float = 1.0
    forward_ms: float = 40.0
    backward_ms: float = 60.0
    latency_ms: float = 0.2
    bytes_per_second: float = 1e9
    workers: int = 2
    codec_ms: float = 0.05
    late_ms: dict[int, float] = field(default_factory=dict)
    late_from: int = 0
    jitter_ms: float = 0.2
    slow_every: int = 0
    error: float | None = None
    anomaly_rank: int | None = None
    clocks: bool = True
    hook: str = "allreduce_hook"
    seed: int = 0

    @property
    def wire_bytes(self) -> tuple[int, ...]:
        """Bytes of each bucket's payload."""
        return tuple(int(size * self.wire_share) for size in self.bucket_bytes)

    def layout(self) -> LayoutRecord:
        """Return the layout of the buckets, one parameter in each."""
        return LayoutRecord(
            model=_MODEL,
            hook=self.hook,
            generation=1,
            step=1,
            time_ns=_MS,
            buckets=tuple(
                BucketLayout(
                    bucket=i,
                    dtype="float32",
                    device_type="cpu",
                    numel=size // 4,
                    gradient_bytes=size,
                    parameters=((f"layers.{i}.weight", (size // 4,)),),
                )
                for i, size in enumerate(self.bucket_bytes)
            ),
        )


def write_job(job: SyntheticJob, logdir: Path, *, processes: int = 1) -> None:
    """Write a record file for each rank where an exporter would."""
    folder = logdir / "plugins" / "hooktrace"
    folder.mkdir(parents=True, exist_ok=True)
    if processes < 2:
        _write(job, folder, range(job.ranks))
        return
    shares = [range(i, job.ranks, processes) for i in range(processes)]
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        list(pool.map(_write, [job] * processes, [folder] * processes, shares))


def _write(job: SyntheticJob, folder: Path, ranks: Sequence[int]) -> None:
    files = [(folder / f"rank{rank:05d}.jsonl").open("wb") for rank in ranks]
    encoders = [RecordEncoder() for _ in ranks]
    try:
        for rank, encoder, file in zip(ranks, encoders, files, strict=True):
            file.write(encoder.record(_run(job, rank)) + encoder.record(job.layout()))
            if job.clocks and rank:
                file.write(b"".join(map(encoder.record, _clocks(job, rank))))
        previous: Times | None = None  # when each rank had the first bucket of the step before
        for step, times in enumerate(_simulate(job), 1):
            for rank, encoder, file in zip(ranks, encoders, files, strict=True):
                since = None if previous is None else int(previous[rank])
                record, buckets = _records(job, step, rank, times, since)
                file.write(encoder.buckets(buckets) + encoder.record(record))
                if step == 3 and rank == job.anomaly_rank:
                    file.write(encoder.record(_anomaly(job, record)))
            previous = times.ready[:, 0]
        for encoder, file in zip(encoders, files, strict=True):
            file.write(encoder.losses({}, closed=True))
    finally:
        for file in files:
            file.close()


@dataclass(slots=True)
class _StepTimes:
    """Host ns of rank 0, (ranks, buckets); ``free`` and ``done`` of a collective are the job's."""

    ready: Times
    launched: Times
    free: Times
    wire_end: Times


def _simulate(job: SyntheticJob) -> Iterator[_StepTimes]:
    random = np.random.default_rng(job.seed)
    count = len(job.bucket_bytes)
    late = np.array([job.late_ms.get(rank, 0.0) for rank in range(job.ranks)])
    base = np.linspace(0.0, job.backward_ms, count)
    behind = np.where(np.arange(count) >= job.late_from, late[:, None], 0.0)
    now = 10.0 * _MS
    for step in range(job.steps):
        start = now + random.uniform(0, job.jitter_ms, job.ranks)[:, None] * _MS
        wobble = np.cumsum(random.uniform(0, job.jitter_ms / count, (job.ranks, count)), axis=1)
        ready = (start + (base + behind + wobble) * _MS).astype(np.int64)
        launched = ready + int(job.codec_ms * _MS)
        slow = random.integers(count) if job.slow_every and step % job.slow_every == 0 else -1
        free, ends = np.zeros(count, np.int64), np.zeros(count, np.int64)
        for i, size in enumerate(job.wire_bytes):
            if i >= job.workers:
                free[i] = np.sort(ends[:i])[-job.workers]
            takes = job.latency_ms * _MS + size / job.bytes_per_second * 1e9
            takes *= (10 if i == slow else 1) * random.uniform(0.9, 1.1)
            ends[i] = max(int(launched[:, i].max()), int(free[i])) + int(takes)
        yield _StepTimes(ready, launched, free, ends)
        last = max(int(ends.max()), int(ready.max())) + job.codec_ms * _MS
        now = last + job.forward_ms * _MS


def _records(
    job: SyntheticJob, step: int, rank: int, times: _StepTimes, since: int | None
) -> tuple[StepRecord, tuple[BucketRecord, ...]]:
    own = _offset_ns(rank)
    count = len(job.bucket_bytes)
    codec = int(job.codec_ms * _MS)
    buckets, spans, wires = [], [], []
    for i in range(count):
        ready, launched = int(times.ready[rank, i]) - own, int(times.launched[rank, i]) - own
        start = max(launched, int(times.free[i]) - own)
        end = int(times.wire_end[i]) - own
        done = end + codec
        sent = job.wire_bytes[i]
        wire = Stage(
            name="wire", start_ns=start, end_ns=end, derived=True, collective="all_reduce",
            wire_bytes=sent, dtype="float32",
        )  # fmt: skip
        error = None
        if job.error is not None and step % 25 == 0 and i == step // 25 % count:
            error = _error(job.error * (1 + i / count))
        stages = [Stage(name="compress", start_ns=ready, end_ns=launched)]
        if start > launched:
            stages.append(Stage(name="queue", start_ns=launched, end_ns=start, derived=True))
        stages += [wire, Stage(name="decompress", start_ns=end, end_ns=done)]
        buckets.append(
            BucketRecord(
                model=_MODEL,
                hook=job.hook,
                generation=1,
                step=step,
                bucket=i,
                is_last=i == count - 1,
                dtype="float32",
                device_type="cpu",
                numel=job.bucket_bytes[i] // 4,
                gradient_bytes=job.bucket_bytes[i],
                parameter_count=1,
                ready_ns=ready,
                launched_ns=launched,
                done_ns=done,
                stages=tuple(stages),
                wire_bytes=sent,
                bus_bytes=bus_bytes("all_reduce", sent, job.ranks),
                error=error,
            )
        )
        spans.append((ready, done))
        wires.append((start, end))
    first, last, done = spans[0][0], spans[-1][0], max(end for _, end in spans)
    record = StepRecord(
        model=_MODEL, hook=job.hook, generation=1, step=step, clock="host",
        first_ready_ns=first, last_ready_ns=last, done_ns=done, busy_ns=union_ns(spans),
        exposed_ns=exposed_ns(last, done), wire_busy_ns=union_ns(wires),
        period_ns=None if since is None else first + own - since,
        gradient_bytes=sum(job.bucket_bytes), wire_bytes=sum(job.wire_bytes),
        bus_bytes=bus_bytes("all_reduce", sum(job.wire_bytes), job.ranks), bucket_count=count,
    )  # fmt: skip
    return record, tuple(buckets)


def _error(size: float) -> ErrorRecord:
    return ErrorRecord(
        relative_l2=size,
        cosine=1 - size**2 / 2,
        max_absolute=0.1,
        flipped_share=0.01,
        reference_l2=3.0,
    )


def _offset_ns(rank: int) -> int:
    """Return by how much a rank's clock is behind rank 0's."""
    return rank * 10**9


def _run(job: SyntheticJob, rank: int) -> RunInfo:
    return RunInfo(
        run_id="synthetic", rank=rank, local_rank=rank % 8, world_size=job.ranks,
        host=f"host-{rank // 8}", pid=1000 + rank, torch_version="2.13.0", backend="gloo",
        host_anchor_ns=-_offset_ns(rank), wall_anchor_ns=_WALL_NS,
    )  # fmt: skip


def _clocks(job: SyntheticJob, rank: int) -> list[ClockRecord]:
    span = int((job.forward_ms + job.backward_ms) * job.steps * _MS)
    return [
        ClockRecord(
            time_ns=at - _offset_ns(rank),
            offset_ns=_offset_ns(rank),
            uncertainty_ns=20_000,
            round_trip_ns=40_000,
            pings=32,
        )
        for at in range(0, span + 1, max(1, span // 10))
    ]


def _anomaly(job: SyntheticJob, step: StepRecord) -> AnomalyRecord:
    return AnomalyRecord(
        kind="nonfinite_gradient", model=_MODEL, hook=job.hook, generation=1, step=step.step,
        bucket=1, stage="compress", time_ns=step.first_ready_ns, rank=job.anomaly_rank,
        parameter="layers.1.weight",
        message="rank 2 put inf into layers.1.weight; look at the loss of its batch",
    )  # fmt: skip
