"""Record files of a made-up job that hung: what its ranks could still write.

    SyntheticJob, SyntheticHang --write_hung_job--> files, all with the record of the hang

The steps before the hang are those of the job.  One that went on shows as a step that took as much
longer; all after it are as much later.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from ..records import HangRecord, RankStacks
from .synthetic import SyntheticJob, SyntheticStep, rank_file, simulate, write_rank

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

    def records(self, job: SyntheticJob, since_ns: int, rank: int) -> list[HangRecord]:
        """Return what a rank recorded: the hang, and its end; ``since_ns``: in rank 0's clock."""
        waiting, what = self.waiting(job), f"bucket {self.bucket} of step {self.step}"
        began = HangRecord(
            kind=self.kind, hang=0, model=job.model, hook=job.hook, step=self.step,
            bucket=self.bucket, ranks=(self.rank,), waiting=waiting,
            since_ns=since_ns - job.offset_ns(rank),
            since_wall_ns=job.run(0).wall_ns(since_ns), rank=rank,
            message=f"{what} has waited {self.told_after_s} s on "
            f"{'rank' if len(waiting) == 1 else 'ranks'} {', '.join(map(str, waiting))} for rank "
            f"{self.rank}, which is in `{self.place}`, 1 step behind",
            stacks=tuple(self._stacks(job, rank) for rank in range(job.ranks)),
        )  # fmt: skip
        if self.went_on_after_s is None:
            return [began]
        message = (
            f"it went on after at most {self.went_on_after_s:g} s: {what}, which had waited for "
            f"rank {self.rank} ({self.kind})"
        )
        after = int(self.went_on_after_s * _S)
        return [began, replace(began, ended_after_ns=after, message=message, stacks=())]

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
    steps = [_moved(now, hang) for now in simulated]
    if hang.went_on_after_s is None:
        steps = steps[: hang.step - 1]
    for rank in range(job.ranks):
        is_there = rank not in hang.killed
        records = [job.run(rank), job.layout(), *job.clock_records(rank)]
        if is_there:
            records += hang.records(job, since_ns, rank)
        own = [now.completed(rank) for now in steps]
        write_rank(logdir, rank, rank_file(records, own, ended=hang.closed and is_there))
    return hang.records(job, since_ns, 0)[0]


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
