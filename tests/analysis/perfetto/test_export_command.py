"""``hooktrace export``: what it writes and says, beside what ``hooktrace report`` says alike."""

from __future__ import annotations

from pathlib import Path

from hooktrace.testing.synthetic import SyntheticJob, write_job
from tests.analysis.perfetto.trace_events import read, validate
from tests.analysis.report.test_command import call

JOB = SyntheticJob(ranks=3, steps=4)


def test_one_rank_is_exported_alone(tmp_path: Path) -> None:
    """And one that has no file is named, with those that have."""
    write_job(JOB, tmp_path)
    out = tmp_path / "one.json"
    one = call("export", tmp_path, "--rank", "1", "--out", out)
    assert one.exit_code == 0
    assert "1 rank, " in one.output
    assert {e["pid"] for e in validate(read(out))} == {1}
    none = call("export", tmp_path, "--rank", "7", "--out", tmp_path / "none.json")
    assert none.exit_code == 2
    assert none.stderr.rstrip().endswith("no file of rank 7 is there; pass --rank one of 0-2")
