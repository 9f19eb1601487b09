"""What stands in the columns: whose clock, which unit, and what is not known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from hooktrace.analysis.frames import tables
from hooktrace.analysis.frames.tables import Made, Values
from hooktrace.records import CompletedStep
from hooktrace.records.files import record_path
from hooktrace.testing.rank_file import rank_file
from hooktrace.testing.synthetic import Moments, SyntheticJob, simulate, write_job
from tests.analysis.report.sharded_jobs import ShardedJob, units, write_sharded
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


def test_times_of_all_ranks_are_in_rank_0s_clock(tmp_path: Path) -> None:
    """Rank 1's own clock is a second behind; the wall clock is that of rank 0's machine."""
    write(tmp_path, [1, 1])
    table = made(tmp_path, "buckets")
    assert listed(table["called_ns"]) == [JOB.start_ns] * 2
    assert listed(table["done_ns"]) == [JOB.start_ns + 21 * MS] * 2
    assert listed(table["duration_ns"]) == [21 * MS] * 2
    assert listed(table["time"]) == [JOB.wall_ns + JOB.start_ns] * 2
    assert listed(table["clock_uncertainty_ns"]) == [0, 20_000]


def test_wire_is_wait_and_transfer(tmp_path: Path) -> None:
    """Rank 0 begins 8 ms before rank 1, for whom it waits."""
    write(tmp_path, [1, 9])
    stages = made(tmp_path, "stages")
    assert listed(stages["stage"])[:4] == ["compress", "queue", "wire", "decompress"]
    waits = made(tmp_path, "waits")
    assert listed(waits["rank"]) == [0, 1]
    assert listed(waits["wait_ns"]) == [8 * MS, 0]
    assert listed(waits["transfer_ns"]) == [11 * MS] * 2
    assert listed(waits["duration_ns"]) == [19 * MS, 11 * MS]
    assert listed(waits["waited_for"]) == [1, 1]
    assert listed(made(tmp_path, "models")["waits_unknown"]) == [None]
    buckets = made(tmp_path, "buckets")
    assert listed(buckets["wait_ns"]) == [8 * MS, 0]
    assert listed(buckets["transfer_ns"]) == [11 * MS] * 2


def test_without_clocks_nobody_knows_how_far_off_times_are(tmp_path: Path) -> None:
    """They stand by the wall clock, and no rank is named."""
    job = SyntheticJob(ranks=2, steps=1, bucket_bytes=(4_000_000,), clocks=False)
    write(tmp_path, [1, 9], job=job)
    stages = made(tmp_path, "stages")
    assert listed(stages["clock_uncertainty_ns"])[4:] == [None] * 4
    assert listed(made(tmp_path, "waits")["waited_for"]) == [None] * 2
    assert listed(made(tmp_path, "ranks")["clock_known"]) == [True, False]
    assert listed(made(tmp_path, "buckets")["called_ns"]) == [JOB.start_ns] * 2


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


def test_an_exception_and_an_error_stand_with_their_bucket(tmp_path: Path) -> None:
    """All others have none."""
    write_job(SyntheticJob(ranks=1, steps=2, error=0.25, error_every=2), tmp_path)
    table = made(tmp_path, "buckets")
    known = [one for one in listed(table["error_relative_l2"]) if one == one]  # noqa: PLR0124
    assert known == [0.25 * (1 + 1 / 8)]  # as SyntheticJob makes it of bucket 1
    assert set(listed(table["exception"])) == {None}


def test_units_have_names_and_what_training_waited(tmp_path: Path) -> None:
    """And buckets have none: not known, in each column that is of units alone."""
    write_sharded(ShardedJob(ranks=2, steps=2, units=units(1), hidden=0.5), tmp_path / "units")
    found = made(tmp_path / "units", "buckets")
    assert listed(found["unit"])[:5] == ["<root>", "blocks.0", "blocks.0", "blocks.0", "<root>"]
    gather, scatter = "all_gather", "reduce_scatter"
    assert listed(found["collective"])[:5] == [gather, gather, gather, scatter, scatter]
    assert listed(found["phase"])[:3] == ["forward", "forward", "backward"]
    assert listed(found["turn"])[:5] == [0] * 5
    exposed, took = listed(found["exposed_ns"]), listed(found["duration_ns"])
    assert [2 * x for x in exposed] == pytest.approx(took, abs=2)  # type: ignore[operator]
    assert all(listed(made(tmp_path / "units", "steps")["sharded"]))
    write(tmp_path / "buckets", [0, 0])
    found = made(tmp_path / "buckets", "buckets")
    for name in ("unit", "collective", "phase", "turn", "exposed_ns"):
        assert listed(found[name]) == [None, None]
    assert not any(listed(made(tmp_path / "buckets", "steps")["sharded"]))
