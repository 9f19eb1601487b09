"""How far each rank came, who is behind, and hangs of the runs before in the same directory."""

from __future__ import annotations

import json
from pathlib import Path

from msgspec.structs import replace

from hooktrace.analysis.hang.ends import Behind, LastStep, behind, earlier_hangs, rank_ends
from hooktrace.records.files import record_path
from hooktrace.testing.synthetic import SyntheticJob, write_job
from hooktrace.testing.synthetic_hangs import SyntheticHang, write_hung_job
from tests.analysis.hang.test_command import call
from tests.analysis.run.files import run_of, steps_of, text_of, write_ranks
from tests.analysis.runs import run_in

WALL_NS = 1_700_000_000_000_000_000


def test_the_last_whole_step_counts(tmp_path: Path) -> None:
    """Not one that was cut off; of each rank with its moment, and whether the file has its end."""
    steps = steps_of(5)
    cut = [*steps[:4], (replace(steps[4][0], complete=False), steps[4][1])]
    write_ranks(tmp_path, {0: text_of(run_of(0), steps), 1: text_of(run_of(1), cut, ended=False)})
    ends = rank_ends(run_in(tmp_path))
    at = [WALL_NS + step.done_ns - 1_000_000_000 for step, _ in steps]
    assert [(e.rank, e.host, e.last, e.closed) for e in ends] == [
        (0, "host-a", (LastStep("net", 4, at[4]),), True),
        (1, "host-a", (LastStep("net", 3, at[3]),), False),
    ]
    assert behind(ends) == [Behind(model="net", ranks=(1,), step=3, furthest=4)]


def test_a_rank_without_a_step_is_behind(tmp_path: Path) -> None:
    """And of ranks that came as far as each other none is."""
    texts = {rank: text_of(run_of(rank), steps_of(3)) for rank in range(2)}
    write_ranks(tmp_path, texts)
    assert behind(rank_ends(run_in(tmp_path))) == []
    write_ranks(tmp_path, {1: text_of(run_of(1), [], ended=False)})
    found = behind(rank_ends(run_in(tmp_path)))
    assert found == [Behind(model="net", ranks=(1,), step=None, furthest=2)]


JOB = SyntheticJob(steps=20)


def make_older(folder: Path) -> None:
    """Give each file of a run the name that it has when another one has begun."""
    for rank in range(JOB.ranks):
        path = record_path(folder, rank)
        path.rename(path.with_name(f"rank{rank:05d}.1.jsonl"))


def test_a_job_that_hung_and_was_started_again(tmp_path: Path) -> None:
    """The exit code is that of the newest run."""
    record = write_hung_job(JOB, SyntheticHang(step=12), tmp_path)
    make_older(tmp_path)
    write_job(JOB, tmp_path)
    result = call(tmp_path)
    assert result.exit_code == 0
    assert result.output.splitlines() == [
        "no hang is recorded in this run",
        f" earlier 2026-11-18 11:06:41.203 UTC, rank00000.1.jsonl: {record.message}",
    ]
    content = json.loads(call(tmp_path, "--json").output)
    assert [one["sentence"] for one in content["earlier"]] == [record.message]


def test_one_that_went_on_is_over(tmp_path: Path) -> None:
    """And of damaged lines nothing is said."""
    record = write_hung_job(JOB, SyntheticHang(step=12, went_on_after_s=42), tmp_path)
    make_older(tmp_path)
    folder = record_path(tmp_path, 0).parent
    with (folder / "rank00000.1.jsonl").open("ab") as file:
        file.write(b'{"kind":"hang","hang":\n')
    (found,) = earlier_hangs(folder)
    assert (found.sentence, found.over, found.file) == (record.message, True, "rank00000.1.jsonl")
