"""Record files of a made-up job that hung: what its ranks could still write.

    SyntheticJob, SyntheticHang --write_hung_job--> files, all with the record of the hang

The steps before the hang are those of the job.  One that went on shows as a step that took as much
longer; all after it are as much later.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from ..records import HangRecord, RankStacks
from ..records.codec import RecordEncoder
from ..records.files import record_path
from ..records.lines import Losses
from .synthetic import SyntheticJob, SyntheticStep, simulate

_S = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticHang:
    """Ranks wait at ``bucket`` of ``step`` for ``rank``, which is at ``place``.

    ``told_after_s``: when the record was made, after the wait began.  ``went_on_after_s``: how long
    it took, ``None`` where it did not end.  ``killed``: ranks whose files have neither the record
    nor their end; ``closed``: whether the other files have theirs.
    """

    step: int
    bucket: int = 5
    rank: int = 2
    kind: str = "busy"
    place: str = "data.py:88 next_batch"
    told_after_s: int = 31
    went_on_after_s: float | None = None
    killed: tuple[int, ...] = ()
    closed: bool = True

    def waiting(self, job: SyntheticJob) -> tuple[int, ...]:
        """Return the ranks that wait."""
        return tuple(rank for rank in range(job.ranks) if rank != self.rank)

    def record(self, job: SyntheticJob, since_ns: int, rank: int = 0) -> HangRecord:
        """Return the record that a rank made of it; ``since_ns``: in rank 0's clock."""
        waiting = self.waiting(job)
        return HangRecord(
            kind=self.kind, hang=0, model=job.model, hook=job.hook, step=self.step,
            bucket=self.bucket, ranks=(self.rank,), waiting=waiting,
            since_ns=since_ns - job.offset_ns(rank),
            since_wall_ns=job.run(0).wall_ns(since_ns), rank=rank,
            message=f"bucket {self.bucket} of step {self.step} has waited {self.told_after_s} s on "
            f"{'rank' if len(waiting) == 1 else 'ranks'} {', '.join(map(str, waiting))} for rank "
            f"{self.rank}, which is in `{self.place}`, 1 step behind",
            stacks=tuple(self._stacks(job, rank) for rank in range(job.ranks)),
        )  # fmt: skip

    def _stacks(self, job: SyntheticJob, rank: int) -> RankStacks:
        run = job.run(rank)
        at = self.place if rank == self.rank else "train.py:41 train"
        return RankStacks(
            rank=rank, pid=run.pid, host=run.host, state="running",
            text=f"MainThread\n  train.py:12 main\n  {at}",
        )  # fmt: skip


def write_hung_job(job: SyntheticJob, hang: SyntheticHang, logdir: Path) -> HangRecord:
    """Write each rank's record file where an exporter would; returns rank 0's record of the hang.

    Of a hang that did not end no step from its own on is in the files.  Raises ``ValueError`` where
    the job has no such step.
    """
    simulated = list(simulate(job))
    if not 0 < hang.step <= len(simulated):
        raise ValueError(f"step {hang.step} is none of the job's {len(simulated)}")
    waits_from = simulated[hang.step - 1].ready[list(hang.waiting(job)), hang.bucket]
    since_ns = int(waits_from.min())
    record_path(logdir, 0).parent.mkdir(parents=True, exist_ok=True)
    for rank in range(job.ranks):
        record = hang.record(job, since_ns, rank)
        record_path(logdir, rank).write_bytes(b"".join(_lines(job, hang, simulated, record)))
    return hang.record(job, since_ns)


def _lines(
    job: SyntheticJob,
    hang: SyntheticHang,
    steps: list[SyntheticStep],
    record: HangRecord,
) -> Iterator[bytes]:
    encoder, rank = RecordEncoder(), record.rank
    yield encoder.record(job.run(rank)) + encoder.record(job.layout())
    yield b"".join(map(encoder.record, job.clock_records(rank)))
    has_record = rank not in hang.killed
    for now in steps:
        if now.number == hang.step and has_record:
            yield encoder.record(record)
        if now.number >= hang.step and hang.went_on_after_s is None:
            break
        step, buckets = _moved(now, hang).completed(rank)
        yield encoder.buckets(buckets) + encoder.record(step)
        if now.number == hang.step and has_record and hang.went_on_after_s is not None:
            after = int(hang.went_on_after_s * _S)
            what = (
                f"bucket {hang.bucket} of step {hang.step}, which had waited for rank {hang.rank}"
            )
            message = f"it went on after at most {hang.went_on_after_s:g} s: {what} ({hang.kind})"
            yield encoder.record(replace(record, ended_after_ns=after, message=message, stacks=()))
    if hang.closed and has_record:
        yield encoder.record(Losses(closed=True))


def _moved(now: SyntheticStep, hang: SyntheticHang) -> SyntheticStep:
    """Return a step as much later as the hang took; of its own step what came after the hang."""
    by = int((hang.went_on_after_s or 0) * _S)
    if now.number < hang.step:
        return now
    ready, free, ends, before = now.ready + by, now.free + by, now.ends + by, now.before
    if now.number > hang.step + 1 and before is not None:
        before = before + by
    if now.number == hang.step:
        late = np.arange(now.ready.shape[1]) >= hang.bucket
        ready, free, ends = now.ready.copy(), now.free, now.ends + by * late
        ready[hang.rank, late] += by
    return now._replace(ready=ready, free=free, ends=ends, before=before)
