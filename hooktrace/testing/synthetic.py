"""Records of a made-up job, of which one knows what a report must find; no torch, always the same.

    SyntheticJob --simulate--> SyntheticStep --completed(rank)--> records --write_job--> files

A collective starts when its last rank has launched it and one of the backend's workers is free, and
takes a latency plus its bytes over the bandwidth.  So a late rank makes all others wait, and a
large last bucket is exposed.  Times of one's own: ``SyntheticJob().step(1, [Moments(...), ...])``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from ..records import (
    AnomalyRecord,
    AssignmentRecord,
    BucketLayout,
    BucketRecord,
    ClockRecord,
    CompletedStep,
    ErrorRecord,
    Parameter,
    RunInfo,
    SkewRecord,
    Stage,
    StepRecord,
)
from ..records.base import Record
from ..records.codec import RecordEncoder
from ..records.files import record_path
from ..records.intervals import bus_bytes, exposed_ns, union_ns
from ..records.lines import Losses

_MS = 1_000_000
_WORKERS = 2
_Ints = npt.NDArray[np.int64]


class Moments(NamedTuple):
    """When a bucket was where, in ns of its rank's host clock; it queues from ``encoded`` on."""

    ready: int
    encoded: int
    sent: int
    arrived: int
    done: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticJob:
    """What the job is like; steps count from 1, at ``start_ns`` of rank 0's clock.

    ``bucket_bytes``: gradient bytes of each bucket, in order; ``wire_share`` of them is sent.
    ``backward_ms``: from the first to the last bucket.  ``codec_ms``: compress, and again
    decompress, of a bucket.
    ``late_ms``: by rank, how much later than the others it is from bucket ``late_from`` on, each
    ``late_every`` steps.  ``slow_every``: each so many steps one bucket's collective takes ten
    times as long.  ``error``: of a probe each ``error_every`` steps, of the buckets in turn; with
    ``skews`` the ranks then know who was late.  ``anomaly_rank``: puts inf into a gradient of step
    3.  ``clocks``: whether the ranks measured theirs, each a second behind that of the rank before.
    """

    ranks: int = 4
    steps: int = 50
    model: str = "synthetic"
    hook: str = "allreduce_hook"
    bucket_bytes: tuple[int, ...] = (4_000_000,) * 8
    wire_share: float = 1.0
    wire_dtype: str = "float32"
    forward_ms: float = 40.0
    backward_ms: float = 60.0
    latency_ms: float = 0.2
    bytes_per_second: float = 1e9
    codec_ms: float = 0.05
    late_ms: dict[int, float] = field(default_factory=dict)
    late_from: int = 0
    late_every: int = 1
    jitter_ms: float = 0.2
    slow_every: int = 0
    error: float | None = None
    error_every: int = 25
    skews: bool = False
    anomaly_rank: int | None = None
    clocks: bool = True
    start_ns: int = 10 * _MS
    wall_ns: int = 1_795_000_000_000 * _MS
    seed: int = 0

    def offset_ns(self, rank: int) -> int:
        """Return by how much a rank's host clock is behind rank 0's."""
        return rank * 1000 * _MS

    def run(self, rank: int) -> RunInfo:
        """Return the run as a rank sees it."""
        return run_of("synthetic", rank, self.ranks, self.wall_ns, self.offset_ns(rank))

    def layout(self, rank: int = 0) -> AssignmentRecord:
        """Return the layout of the buckets, one parameter in each, as a rank saw it."""
        buckets = tuple(
            BucketLayout(
                bucket=i, dtype="float32", device_type="cpu", numel=size // 4, gradient_bytes=size,
                parameters=(Parameter(f"layers.{i}.weight", (size // 4,)),),
            )
            for i, size in enumerate(self.bucket_bytes)
        )  # fmt: skip
        return AssignmentRecord(
            model=self.model, hook=self.hook, rebuild=1, step=1,
            time_ns=self.start_ns - self.offset_ns(rank), buckets=buckets,
        )  # fmt: skip

    def clock_records(self, rank: int) -> list[ClockRecord]:
        """Return eleven measurements of a rank's clock along the run; none of rank 0's."""
        span = int((self.forward_ms + self.backward_ms) * self.steps * _MS)
        times = range(0, span + 1, max(1, span // 10)) if self.clocks and rank else ()
        offset = self.offset_ns(rank)
        return [
            ClockRecord(
                time_ns=at - offset, offset_ns=offset, uncertainty_ns=20_000,
                round_trip_ns=40_000, pings=32,
            )
            for at in times
        ]  # fmt: skip

    def bucket(self, step: int, index: int, moments: Moments) -> BucketRecord:
        """Return the record of a bucket whose call went through these moments."""
        size, sent = self.bucket_bytes[index], self.wire_bytes(index)
        return BucketRecord(
            model=self.model, hook=self.hook, rebuild=1, step=step, bucket=index,
            is_last=index == len(self.bucket_bytes) - 1, dtype="float32", device_type="cpu",
            numel=size // 4, gradient_bytes=size, parameter_count=1, ready_ns=moments.ready,
            launched_ns=moments.encoded, done_ns=moments.done, stages=self._stages(sent, moments),
            wire_bytes=sent, bus_bytes=bus_bytes("all_reduce", sent, self.ranks),
        )  # fmt: skip

    def step(
        self, step: int, moments: Sequence[Moments], *, previous_period_ns: int | None = None
    ) -> CompletedStep:
        """Return the step whose buckets went through these moments, with the buckets."""
        buckets = tuple(self.bucket(step, i, one) for i, one in enumerate(moments))
        return step_of(buckets, previous_period_ns), buckets

    def wire_bytes(self, index: int) -> int:
        """Return how many bytes of a bucket are sent."""
        return int(self.bucket_bytes[index] * self.wire_share)

    def _stages(self, sent: int, moments: Moments) -> tuple[Stage, ...]:
        ready, encoded, start, arrived, done = moments
        queue = Stage(name="queue", start_ns=encoded, end_ns=start, derived=True)
        return (
            Stage(name="compress", start_ns=ready, end_ns=encoded),
            *([queue] if start > encoded else []),
            Stage(
                name="wire", start_ns=start, end_ns=arrived, derived=True,
                collective="all_reduce", wire_bytes=sent, dtype=self.wire_dtype,
            ),
            Stage(name="decompress", start_ns=arrived, end_ns=done),
        )  # fmt: skip


def run_of(run_id: str, rank: int, ranks: int, wall_ns: int, offset_ns: int = 0) -> RunInfo:
    """Return a run as a rank sees it, eight of them on a host; its clock is so much behind."""
    return RunInfo(
        run_id=run_id, rank=rank, local_rank=rank % 8, world_size=ranks, host=f"host-{rank // 8}",
        pid=1000 + rank, torch_version="2.13.0", backend="gloo", host_anchor_ns=-offset_ns,
        wall_anchor_ns=wall_ns,
    )  # fmt: skip


def step_of(buckets: Sequence[BucketRecord], previous_period_ns: int | None) -> StepRecord:
    """Return the step of a rank's buckets, in the order in which they were ready."""
    first, last, done = buckets[0], buckets[-1], max(bucket.done_ns or 0 for bucket in buckets)
    wire = [(s.start_ns, s.end_ns) for bucket in buckets for s in bucket.stages if s.name == "wire"]
    return StepRecord(
        model=first.model, hook=first.hook, rebuild=first.rebuild, step=first.step, clock="host",
        first_ready_ns=first.ready_ns, last_ready_ns=last.ready_ns, done_ns=done,
        communication_ns=union_ns((bucket.ready_ns, bucket.done_ns) for bucket in buckets),
        exposed_ns=exposed_ns(last.ready_ns, done), wire_in_flight_ns=union_ns(wire),
        previous_period_ns=previous_period_ns,
        gradient_bytes=sum(bucket.gradient_bytes for bucket in buckets),
        wire_bytes=sum(bucket.wire_bytes or 0 for bucket in buckets),
        bus_bytes=sum(bucket.bus_bytes or 0.0 for bucket in buckets), bucket_count=len(buckets),
    )  # fmt: skip


class SyntheticStep(NamedTuple):
    """One step of a job, of which each rank has records of its own.

    Times are ns of rank 0's clock: when buckets were ``ready``, (ranks, buckets), and those of the
    step ``before``; of their collectives, when a worker was ``free`` and when they end: (buckets).
    """

    job: SyntheticJob
    number: int
    ready: _Ints
    free: _Ints
    ends: _Ints
    before: _Ints | None

    def moments(self, rank: int) -> list[Moments]:
        """Return when a rank's buckets were where."""
        codec = int(self.job.codec_ms * _MS)
        ready, encoded = self.ready[rank], self.ready[rank] + codec
        columns = (ready, encoded, np.maximum(encoded, self.free), self.ends, self.ends + codec)
        own = np.stack(columns, 1) - self.job.offset_ns(rank)
        return [Moments(*row) for row in own.tolist()]

    def completed(self, rank: int) -> CompletedStep:
        """Return the step as a rank recorded it."""
        period = None if self.before is None else int((self.ready - self.before)[rank, 0])
        step, buckets = self.job.step(self.number, self.moments(rank), previous_period_ns=period)
        if not self._is_checked:
            return step, buckets
        turn = self.number // self.job.error_every % len(buckets)
        size = (self.job.error or 0.0) * (1 + turn / len(buckets))
        error = ErrorRecord(
            relative_l2=size, cosine=1 - size**2 / 2, max_absolute=0.1, flipped_share=0.01,
            reference_l2=3.0,
        )  # fmt: skip
        checked = replace(buckets[turn], error=error, checked=True)
        return replace(step, checked=True), (*buckets[:turn], checked, *buckets[turn + 1 :])

    def events(self, rank: int) -> list[AnomalyRecord | SkewRecord]:
        """Return what else a rank noticed: who was late, and what was wrong."""
        compared = len(self.job.bucket_bytes) if self._is_checked and self.job.skews else 0
        skews = [self._skew(rank, bucket) for bucket in range(compared)]
        is_wrong = self.number == 3 and rank == self.job.anomaly_rank
        return [*skews, *([self._anomaly(rank)] if is_wrong else [])]

    @property
    def _is_checked(self) -> bool:
        return self.job.error is not None and self.number % self.job.error_every == 0

    def _skew(self, rank: int, bucket: int) -> SkewRecord:
        ready = self.ready[:, bucket]
        return SkewRecord(
            model=self.job.model, hook=self.job.hook, rebuild=1, step=self.number, bucket=bucket,
            time_ns=int(ready[rank]) - self.job.offset_ns(rank), rank=rank,
            ranks=tuple(range(self.job.ranks)), arrivals_ns=tuple((ready - ready.min()).tolist()),
            uncertainty_ns=40_000,
        )  # fmt: skip

    def _anomaly(self, rank: int) -> AnomalyRecord:
        return AnomalyRecord(
            kind="nonfinite_gradient", model=self.job.model, hook=self.job.hook, rebuild=1,
            step=self.number, bucket=1, stage="compress",
            time_ns=int(self.ready[rank, 0]) - self.job.offset_ns(rank), rank=rank,
            parameter="layers.1.weight",
            message=f"rank {rank} put inf into layers.1.weight; look at the loss of its batch",
        )  # fmt: skip


def simulate(job: SyntheticJob) -> Iterator[SyntheticStep]:
    """Yield the job's steps; of the same job always the same."""
    random = np.random.default_rng(job.seed)
    count = len(job.bucket_bytes)
    late = np.array([job.late_ms.get(rank, 0.0) for rank in range(job.ranks)])
    base = np.linspace(0.0, job.backward_ms, count)
    behind = np.where(np.arange(count) >= job.late_from, late[:, None], 0.0)
    sent = np.array([job.wire_bytes(i) for i in range(count)])
    takes_ns = job.latency_ms * _MS + sent / job.bytes_per_second * 1e9
    now, before = float(job.start_ns), None
    for step in range(job.steps):
        start = now + random.uniform(0, job.jitter_ms, job.ranks)[:, None] * _MS
        wobble = np.cumsum(random.uniform(0, job.jitter_ms / count, (job.ranks, count)), axis=1)
        delay = np.zeros_like(behind) if step % job.late_every else behind
        ready = (start + (base + delay + wobble) * _MS).astype(np.int64)
        launched = ready + int(job.codec_ms * _MS)
        slow = random.integers(count) if job.slow_every and step % job.slow_every == 0 else -1
        free, ends = np.zeros(count, np.int64), np.zeros(count, np.int64)
        for i in range(count):
            free[i] = np.sort(ends[:i])[-_WORKERS] if i >= _WORKERS else 0
            takes = takes_ns[i] * (10 if i == slow else 1) * random.uniform(0.9, 1.1)
            ends[i] = max(int(launched[:, i].max()), int(free[i])) + int(takes)
        yield SyntheticStep(job, step + 1, ready, free, ends, before)
        before = ready
        now = max(int(ends.max()), int(ready.max())) + (job.codec_ms + job.forward_ms) * _MS


def write_job(job: SyntheticJob, logdir: Path, ranks: Iterable[int] | None = None) -> None:
    """Write each rank's record file where an exporter would, or those of some ranks."""
    steps = list(simulate(job))
    for rank in range(job.ranks) if ranks is None else ranks:
        events = [event for now in steps for event in now.events(rank)]
        records = [job.run(rank), job.layout(rank), *job.clock_records(rank), *events]
        write_rank(logdir, rank, rank_file(records, [now.completed(rank) for now in steps]))


def rank_file(
    records: Iterable[Record], steps: Iterable[CompletedStep], *, ended: bool = True
) -> bytes:
    """Return the lines of a rank's file: ``records``, the run first, then each step's buckets.

    ``ended``: the file was closed, and nothing was lost.
    """
    encoder = RecordEncoder()
    lines = [encoder.record(record) for record in records]
    for step, buckets in steps:
        lines += [encoder.buckets(buckets), encoder.record(step)]
    return b"".join([*lines, encoder.record(Losses(closed=True)) if ended else b""])


def write_rank(logdir: Path, rank: int, lines: bytes) -> None:
    """Write a rank's file where an exporter would."""
    path = record_path(logdir, rank)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lines)
