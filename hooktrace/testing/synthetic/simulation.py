"""When what happened in a made-up job, from its parameters, and what its ranks recorded of it.

A collective starts when its last rank has launched it and one of the backend's workers is free, and
takes a latency plus its bytes over the bandwidth.  So a late rank makes all others wait, a last
bucket that is large is exposed, and small buckets are mostly latency.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from ...records import AnomalyRecord, ErrorRecord, SkewRecord
from ...records.batch import CompletedStep
from .job import Moments, SyntheticJob

_MS = 1_000_000
_Ints = npt.NDArray[np.int64]


class _Times(NamedTuple):
    """Ns of rank 0's clock, (ranks, buckets); of a collective, ``free`` and ``ends``: (buckets)."""

    ready: _Ints
    launched: _Ints
    free: _Ints
    ends: _Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticStep:
    """One step of a job, of which each rank has records of its own."""

    job: SyntheticJob
    number: int
    times: _Times
    before: _Times | None

    def moments(self, rank: int) -> list[Moments]:
        """Return when a rank's buckets were where."""
        own, codec = self.job.offset_ns(rank), int(self.job.codec_ms * _MS)
        ready, launched = self.times.ready[rank] - own, self.times.launched[rank] - own
        sent, ends = np.maximum(launched, self.times.free - own), self.times.ends - own
        columns = (ready, launched, sent, ends, ends + codec)
        return [Moments(*row) for row in np.stack(columns, 1).tolist()]

    def completed(self, rank: int) -> CompletedStep:
        """Return the step as a rank recorded it."""
        period = None
        if self.before is not None:
            period = int(self.times.ready[rank, 0] - self.before.ready[rank, 0])
        step, buckets = self.job.step(self.number, self.moments(rank), period_ns=period)
        if not self._is_probed:
            return step, buckets
        turn = self.number // self.job.error_every % len(buckets)
        error = _error((self.job.error or 0.0) * (1 + turn / len(buckets)))
        return step, (*buckets[:turn], replace(buckets[turn], error=error), *buckets[turn + 1 :])

    def events(self, rank: int) -> list[AnomalyRecord | SkewRecord]:
        """Return what else a rank noticed: who was late, and what was wrong."""
        found: list[AnomalyRecord | SkewRecord] = []
        if self._is_probed and self.job.skews:
            found += [self._skew(rank, bucket) for bucket in range(len(self.job.bucket_bytes))]
        if self.number == 3 and rank == self.job.anomaly_rank:
            found.append(self._anomaly(rank))
        return found

    @property
    def _is_probed(self) -> bool:
        return self.job.error is not None and self.number % self.job.error_every == 0

    def _skew(self, rank: int, bucket: int) -> SkewRecord:
        ready = self.times.ready[:, bucket]
        return SkewRecord(
            model=self.job.model, hook=self.job.hook, generation=1, step=self.number, bucket=bucket,
            time_ns=int(ready[rank]) - self.job.offset_ns(rank), rank=rank,
            ranks=tuple(range(self.job.ranks)), arrivals_ns=tuple((ready - ready.min()).tolist()),
            uncertainty_ns=40_000,
        )  # fmt: skip

    def _anomaly(self, rank: int) -> AnomalyRecord:
        return AnomalyRecord(
            kind="nonfinite_gradient", model=self.job.model, hook=self.job.hook, generation=1,
            step=self.number, bucket=1, stage="compress",
            time_ns=int(self.times.ready[rank, 0]) - self.job.offset_ns(rank), rank=rank,
            parameter="layers.1.weight",
            message=f"rank {rank} put inf into layers.1.weight; look at the loss of its batch",
        )  # fmt: skip


def simulate(job: SyntheticJob) -> Iterator[SyntheticStep]:
    """Yield the job's steps; of the same job always the same."""
    before: _Times | None = None
    for number, times in enumerate(_simulated(job), 1):
        yield SyntheticStep(job=job, number=number, times=times, before=before)
        before = times


def _simulated(job: SyntheticJob) -> Iterator[_Times]:
    random = np.random.default_rng(job.seed)
    count = len(job.bucket_bytes)
    late = np.array([job.late_ms.get(rank, 0.0) for rank in range(job.ranks)])
    base = np.linspace(0.0, job.backward_ms, count)
    behind = np.where(np.arange(count) >= job.late_from, late[:, None], 0.0)
    takes_ns = [
        job.latency_ms * _MS + job.wire_bytes(i) / job.bytes_per_second * 1e9 for i in range(count)
    ]
    now = float(job.start_ns)
    for step in range(job.steps):
        start = now + random.uniform(0, job.jitter_ms, job.ranks)[:, None] * _MS
        wobble = np.cumsum(random.uniform(0, job.jitter_ms / count, (job.ranks, count)), axis=1)
        lag = np.zeros_like(behind) if step % job.late_every else behind
        ready = (start + (base + lag + wobble) * _MS).astype(np.int64)
        launched = ready + int(job.codec_ms * _MS)
        slow = random.integers(count) if job.slow_every and step % job.slow_every == 0 else -1
        free, ends = np.zeros(count, np.int64), np.zeros(count, np.int64)
        for i in range(count):
            if i >= job.workers:
                free[i] = np.sort(ends[:i])[-job.workers]
            takes = takes_ns[i] * (10 if i == slow else 1) * random.uniform(0.9, 1.1)
            ends[i] = max(int(launched[:, i].max()), int(free[i])) + int(takes)
        yield _Times(ready, launched, free, ends)
        now = max(int(ends.max()), int(ready.max())) + (job.codec_ms + job.forward_ms) * _MS


def _error(size: float) -> ErrorRecord:
    return ErrorRecord(
        relative_l2=size, cosine=1 - size**2 / 2, max_absolute=0.1, flipped_share=0.01,
        reference_l2=3.0,
    )  # fmt: skip
