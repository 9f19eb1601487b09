"""A made-up job: its parameters, and its records for moments that are given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ...records import (
    BucketLayout,
    BucketRecord,
    ClockRecord,
    LayoutRecord,
    RunInfo,
    Stage,
    StepRecord,
)
from ...records.batch import CompletedStep
from ...records.intervals import bus_bytes, exposed_ns, union_ns

_MS = 1_000_000
_SECOND = 10**9


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
    ``backward_ms``: from the first to the last bucket.
    ``codec_ms``: compress, and again decompress, of a bucket.
    ``late_ms``: by rank, how much later than the others it is from bucket ``late_from`` on, each
    ``late_every`` steps.
    ``slow_every``: each so many steps one bucket's collective takes ten times as long.
    ``error``: of a probe each ``error_every`` steps, of the buckets in turn; with ``skews`` the
    ranks then know who was late.
    ``anomaly_rank``: puts inf into a gradient of step 3.
    ``clocks``: whether the ranks measured theirs, each a second behind that of the rank before.
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
    workers: int = 2
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
    wall_ns: int = 1_795_000_000 * _SECOND
    seed: int = 0

    def offset_ns(self, rank: int) -> int:
        """Return by how much a rank's host clock is behind rank 0's."""
        return rank * _SECOND

    def run(self, rank: int) -> RunInfo:
        """Return the run as a rank sees it, eight of them on a host."""
        return RunInfo(
            run_id="synthetic", rank=rank, local_rank=rank % 8, world_size=self.ranks,
            host=f"host-{rank // 8}", pid=1000 + rank, torch_version="2.13.0", backend="gloo",
            host_anchor_ns=-self.offset_ns(rank), wall_anchor_ns=self.wall_ns,
        )  # fmt: skip

    def layout(self) -> LayoutRecord:
        """Return the layout of the buckets, one parameter in each."""
        buckets = tuple(
            BucketLayout(
                bucket=i, dtype="float32", device_type="cpu", numel=size // 4, gradient_bytes=size,
                parameters=((f"layers.{i}.weight", (size // 4,)),),
            )
            for i, size in enumerate(self.bucket_bytes)
        )  # fmt: skip
        return LayoutRecord(
            model=self.model, hook=self.hook, generation=1, step=1, time_ns=self.start_ns,
            buckets=buckets,
        )  # fmt: skip

    def clock_records(self, rank: int) -> list[ClockRecord]:
        """Return eleven measurements of a rank's clock along the run; none of rank 0's."""
        if not self.clocks or not rank:
            return []
        span = int((self.forward_ms + self.backward_ms) * self.steps * _MS)
        offset = self.offset_ns(rank)
        return [
            ClockRecord(
                time_ns=at - offset, offset_ns=offset, uncertainty_ns=20_000,
                round_trip_ns=40_000, pings=32,
            )
            for at in range(0, span + 1, max(1, span // 10))
        ]  # fmt: skip

    def bucket(self, step: int, index: int, moments: Moments) -> BucketRecord:
        """Return the record of a bucket whose call went through these moments."""
        size, sent = self.bucket_bytes[index], self.wire_bytes(index)
        return BucketRecord(
            model=self.model, hook=self.hook, generation=1, step=step, bucket=index,
            is_last=index == len(self.bucket_bytes) - 1, dtype="float32", device_type="cpu",
            numel=size // 4, gradient_bytes=size, parameter_count=1, ready_ns=moments.ready,
            launched_ns=moments.encoded, done_ns=moments.done, stages=self._stages(sent, moments),
            wire_bytes=sent, bus_bytes=bus_bytes("all_reduce", sent, self.ranks),
        )  # fmt: skip

    def step(
        self, step: int, moments: Sequence[Moments], *, period_ns: int | None = None
    ) -> CompletedStep:
        """Return the step whose buckets went through these moments, with the buckets."""
        buckets = tuple(self.bucket(step, i, one) for i, one in enumerate(moments))
        first, last, done = moments[0].ready, moments[-1].ready, max(m.done for m in moments)
        sent = sum(map(self.wire_bytes, range(len(moments))))
        record = StepRecord(
            model=self.model, hook=self.hook, generation=1, step=step, clock="host",
            first_ready_ns=first, last_ready_ns=last, done_ns=done,
            busy_ns=union_ns((m.ready, m.done) for m in moments),
            exposed_ns=exposed_ns(last, done),
            wire_busy_ns=union_ns((m.sent, m.arrived) for m in moments), period_ns=period_ns,
            gradient_bytes=sum(self.bucket_bytes[: len(moments)]), wire_bytes=sent,
            bus_bytes=bus_bytes("all_reduce", sent, self.ranks), bucket_count=len(moments),
        )  # fmt: skip
        return record, buckets

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
