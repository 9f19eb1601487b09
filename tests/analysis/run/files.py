"""Record files of made-up ranks, whose clocks are as wrong as a test wants them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from hooktrace.exporters import RecordFileExporter
from hooktrace.exporters.retention import Retention
from hooktrace.records import (
    Batch,
    ClockRecord,
    CompletedStep,
    DeviceSpan,
    OtherCollective,
    OtherCollectives,
    RunInfo,
)
from hooktrace.records.codec import RecordEncoder
from hooktrace.records.files import record_path
from hooktrace.testing.synthetic import Moments, SyntheticJob, rank_file, simulate, write_job
from tests.exporters.records_sample import make_run, make_step

MS = 1_000_000
Change = Callable[[int, CompletedStep], CompletedStep]
Times = tuple[float, float, float, float, float]
"""When a bucket was ready, encoded, sent, arrived and done, ms after the job's start."""


def run_of(rank: int, *, offset_ns: int = 0, wall_error_ns: int = 0, **changes: Any) -> RunInfo:
    """Return the run as a rank sees it whose host clock is behind rank 0's by ``offset_ns``."""
    run = make_run(rank, max(2, rank + 1))
    return replace(
        run,
        host_anchor_ns=run.host_anchor_ns - offset_ns,
        wall_anchor_ns=run.wall_anchor_ns + wall_error_ns,
        **changes,
    )


def _at(one: Any, by: Callable[[int], int], *names: str) -> Any:
    return replace(one, **{name: by(getattr(one, name)) for name in names})


def moved(step: CompletedStep, by: Callable[[int], int]) -> CompletedStep:
    """Return a step whose host times all went through ``by``."""
    record, buckets = step
    return _at(record, by, "first_ready_ns", "last_ready_ns", "done_ns"), tuple(
        replace(
            _at(b, by, "ready_ns", "launched_ns", "done_ns"),
            stages=tuple(_at(s, by, "start_ns", "end_ns") for s in b.stages),
        )
        for b in buckets
    )


def timed_by_device(step: CompletedStep) -> CompletedStep:
    """Return a step whose device took as long for each stage as the host did, and began with it."""
    record, buckets = step
    of_host = moved(step, lambda at: at - record.first_ready_ns)[1]
    return replace(record, clock="device"), tuple(
        replace(
            b, device_type="cuda", stages=(),
            device=DeviceSpan(ready_ns=at.ready_ns, done_ns=at.done_ns, stages=at.stages),
        )
        for b, at in zip(buckets, of_host, strict=True)
    )  # fmt: skip


def text_of(
    run: RunInfo,
    steps: Sequence[CompletedStep],
    *,
    clocks: Sequence[ClockRecord] = (),
    ended: bool = True,
) -> str:
    return rank_file([run, *clocks], steps, ended=ended).decode()


def write_ranks(logdir: Path, texts: dict[int, str]) -> None:
    folder = logdir / "plugins" / "hooktrace"
    folder.mkdir(parents=True, exist_ok=True)
    for rank, text in texts.items():
        (folder / f"rank{rank:05d}.jsonl").write_text(text)


def steps_of(count: int, *, bucket_count: int = 2) -> list[CompletedStep]:
    return [make_step(i, bucket_count=bucket_count) for i in range(count)]


def write_times(
    folder: Path,
    steps: Sequence[Sequence[Sequence[Times]]],
    change: Callable[[CompletedStep], CompletedStep] = lambda step: step,
    *,
    clocks: bool = True,
) -> None:
    """Write steps, of which each rank has these times of its buckets, as ``change`` makes them."""
    sizes = (4_000_000,) * len(steps[0][0])
    job = SyntheticJob(ranks=len(steps[0]), steps=len(steps), bucket_bytes=sizes, clocks=clocks)
    for rank in range(job.ranks):
        base = job.start_ns - job.offset_ns(rank)
        own = [
            [Moments(*(base + int(t * MS) for t in times)) for times in of_ranks[rank]]
            for of_ranks in steps
        ]
        completed = [change(job.step(number, moments)) for number, moments in enumerate(own, 1)]
        records = [job.run(rank), job.layout(), *job.clock_records(rank)]
        write_ranks(folder, {rank: rank_file(records, completed).decode()})


def as_it_is(rank: int, completed: CompletedStep) -> CompletedStep:
    return completed


def write_changed(
    folder: Path, job: SyntheticJob, change: Change, *, files: int | None = None
) -> None:
    """Write the files of a job's first ranks, each of whose steps is changed."""
    for rank in range(job.ranks if files is None else files):
        records = [job.run(rank), job.layout(), *job.clock_records(rank)]
        steps = [change(rank, step.completed(rank)) for step in simulate(job)]
        write_ranks(folder, {rank: rank_file(records, steps).decode()})


def write_kept(
    folder: Path, job: SyntheticJob, retention: Retention, change: Change = as_it_is
) -> None:
    """Write the files of a job as its exporters do, which leave buckets out of most steps."""
    writers = [RecordFileExporter(folder, retention=retention) for _ in range(job.ranks)]
    for rank, writer in enumerate(writers):
        records = job.layout(rank), *job.clock_records(rank)
        writer.export(Batch(run=job.run(rank), records=records))
    for step in simulate(job):
        for rank, writer in enumerate(writers):
            completed = change(rank, step.completed(rank))
            writer.export(Batch(run=job.run(rank), steps=(completed,)))
    for writer in writers:
        writer.close()


def collective(start_us: int, took_us: int | None, **fields: Any) -> OtherCollective:
    """Return one that begins so long after a step's first bucket; without ``took_us`` no end."""
    given = {"name": "all_reduce", "wire_bytes": 4000, "where": "train.py:7", **fields}
    done = None if took_us is None else (start_us + took_us) * 1000
    return OtherCollective(issued_ns=start_us * 1000, done_ns=done, thread="MainThread", **given)


def write_others(folder: Path, *collectives: OtherCollective, **fields: Any) -> None:
    """Write a job of which both ranks were watched in step 3, with these collectives of no hook."""
    job = SyntheticJob(ranks=2, steps=4)
    write_job(job, folder)
    begins = [[step.completed(rank)[0].first_ready_ns for step in simulate(job)] for rank in (0, 1)]
    for rank, (_, _, begin, end, *_) in enumerate(begins):
        placed = tuple(
            replace(
                one,
                issued_ns=begin + one.issued_ns,
                done_ns=None if one.done_ns is None else begin + one.done_ns,
            )
            for one in collectives
        )
        watched = OtherCollectives(
            model="net", step=3, time_ns=begin, until_ns=end, collectives=placed, **fields
        )
        add(folder, rank, watched)


def add(folder: Path, rank: int, *records: Any) -> None:
    with record_path(folder, rank).open("ab") as file:
        file.write(b"".join(map(RecordEncoder().record, records)))


def drop(folder: Path, ranks: Iterable[int], words: str) -> None:
    """Leave out the lines of some ranks' files that have these words; there are such."""
    for rank in ranks:
        path = record_path(folder, rank)
        lines = path.read_text().splitlines(keepends=True)
        kept = [line for line in lines if words not in line]
        assert len(kept) < len(lines)
        path.write_text("".join(kept))
