"""What stands in the columns where a clock, a period or a time is not known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from hooktrace.analysis.frames import tables
from hooktrace.analysis.frames.tables import Made, Values
from hooktrace.records import CompletedStep
from hooktrace.records.files import record_path
from hooktrace.testing.rank_file import rank_file
from hooktrace.testing.synthetic import Moments, SyntheticJob, simulate
from tests.analysis.run.files import write_ranks
from tests.analysis.runs import run_in

MS = 1_000_000
JOB = SyntheticJob(ranks=2, steps=1, bucket_bytes=(4_000_000,))


def write(
    folder: Path,
    begins_ms: list[int],
    change: Callable[[CompletedStep], CompletedStep] = lambda step: step,
    job: SyntheticJob = JOB,
) -> None:
    """One bucket of one step: called 0 ms after its start, on the wire until 20 ms."""
    texts = {}
    for rank, begin in enumerate(begins_ms):
        start = job.start_ns - job.offset_ns(rank)
        moments = Moments(start, start, start + begin * MS, start + 20 * MS, start + 21 * MS)
        records = [job.run(rank), job.layout(), *job.clock_records(rank)]
        texts[rank] = rank_file(records, [change(job.step(1, [moments]))]).decode()
    write_ranks(folder, texts)


def made(folder: Path, name: str) -> Made:
    found: Made = getattr(tables, f"{name}_table")(run_in(folder))
    return found


def listed(values: Values) -> list[object]:
    """Return names or numbers, ``None`` where they are not known."""
    known = np.ones(len(values.data), np.bool_) if values.known is None else values.known
    data = values.data if values.names is None else np.array(values.names, object)[values.data]
    return [one if k else None for one, k in zip(data.tolist(), known.tolist(), strict=True)]


def test_without_rank_0_and_clocks_there_is_no_clock_to_tell_times_in(tmp_path: Path) -> None:
    """The wall clock is then the rank's own machine's."""
    job = SyntheticJob(ranks=2, steps=1, bucket_bytes=(4_000_000,), clocks=False)
    write(tmp_path, [1, 9], job=job)
    record_path(tmp_path, 0).unlink()
    table = made(tmp_path, "buckets")
    assert listed(table["called_ns"]) == [None]
    assert listed(table["time"]) == [JOB.wall_ns + JOB.start_ns]


def test_the_last_step_has_no_period_yet(tmp_path: Path) -> None:
    """Only the next one knows it; bytes that nobody counted are not known either."""

    def unsized(step: CompletedStep) -> CompletedStep:
        record, buckets = step
        return replace(record, wire_bytes=None), tuple(replace(b, wire_bytes=None) for b in buckets)

    write(tmp_path, [1, 1], unsized)
    assert listed(made(tmp_path, "buckets")["time"]) == [JOB.wall_ns + JOB.start_ns] * 2
    steps = made(tmp_path, "steps")
    assert listed(steps["period_ns"]) == [None, None]
    assert listed(steps["wire_bytes"]) == [None, None]
    assert listed(made(tmp_path, "buckets")["wire_bytes"]) == [None, None]


def test_steps_whose_buckets_stand_for_all_are_marked(tmp_path: Path) -> None:
    """Not those that the file has for being slow, where it left others out."""
    job = SyntheticJob(ranks=2, steps=8, bucket_bytes=(4_000_000,))

    def kept(completed: CompletedStep) -> CompletedStep:
        step, buckets = completed
        if step.step % 4 == 0:
            return replace(step, kept_for="slow"), buckets
        if step.step % 4 == 1:
            return replace(step, detail_kept=False), ()
        return replace(step, kept_for="window"), buckets

    texts = {}
    for rank in range(2):
        records = [job.run(rank), job.layout(), *job.clock_records(rank)]
        steps = [kept(now.completed(rank)) for now in simulate(job)]
        texts[rank] = rank_file(records, steps).decode()
    write_ranks(tmp_path, texts)
    table = made(tmp_path, "steps")
    of_step = zip(listed(table["step"]), listed(table["stands_for_all"]), strict=True)
    assert {n for n, stands in of_step if stands} == {2, 3, 6, 7}


def test_device_buckets_without_times_have_none(tmp_path: Path) -> None:
    """The host knows when it called the hook, not when the result was there."""

    def untimed(step: CompletedStep) -> CompletedStep:
        record, buckets = step
        return record, tuple(replace(b, device_type="cuda", stages=()) for b in buckets)

    write(tmp_path, [1, 1], untimed)
    table = made(tmp_path, "buckets")
    assert listed(table["done_ns"]) == [None, None]
    assert listed(table["duration_ns"]) == [None, None]
    assert listed(table["called_ns"]) == [JOB.start_ns] * 2
