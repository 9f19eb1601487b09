"""Hangs of the runs before, in the same directory: told, though the newest run has none."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from hooktrace.__main__ import main
from hooktrace.analysis.hang.ends import earlier_hangs
from hooktrace.records.files import record_path
from hooktrace.testing.synthetic import SyntheticJob, write_job
from hooktrace.testing.synthetic_hangs import SyntheticHang, write_hung_job

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
    result = CliRunner().invoke(main, ["hang", str(tmp_path)])
    assert result.exit_code == 0
    assert result.output.splitlines() == [
        "no hang is recorded in this run",
        f" earlier 2026-11-18 11:06:41.203 UTC, rank00000.1.jsonl: {record.message}",
    ]
    content = json.loads(CliRunner().invoke(main, ["hang", str(tmp_path), "--json"]).output)
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
