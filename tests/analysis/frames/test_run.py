"""What a user has in hand after ``hooktrace.load``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import hooktrace
from hooktrace.__main__ import main
from hooktrace.records.errors import UsageError
from hooktrace.records.files import record_path
from hooktrace.testing.synthetic import SyntheticJob, write_job

JOB = SyntheticJob(ranks=3, steps=20, late_ms={1: 9.0})


def test_a_run_says_what_it_is(tmp_path: Path) -> None:
    write_job(JOB, tmp_path)
    run = hooktrace.load(tmp_path)
    assert repr(run) == "<run synthetic: 3 of 3 ranks, gloo, torch 2.13.0>"
    assert isinstance(run, hooktrace.Run)
    ranks, models = run.ranks, run.models
    assert list(ranks["rank"]) == [0, 1, 2]
    assert list(ranks["clock_known"]) == list(ranks["closed"]) == [True] * 3
    assert (set(ranks["steps"]), set(ranks["unread"]), len(set(ranks["host"]))) == ({20}, {0}, 1)
    assert [len(models), models["model"][0], models["ranks"][0]] == [1, "synthetic", 3]
    assert models["steps"][0] == 20
    assert models["counts"][0] == max(ranks["counts"]) == sum(run.steps["counts"]) / 3
    assert models["waits_unknown"].mask.all()


def test_why_waits_are_not_known_is_told(tmp_path: Path) -> None:
    """Of a rank that has no file, for whom all others may have waited."""
    write_job(JOB, tmp_path)
    record_path(tmp_path, 1).unlink()
    run = hooktrace.load(tmp_path)
    assert run.models["waits_unknown"][0].startswith("2 of 3 ranks have a file here")
    assert run.waits["wait_ns"].mask.all()
    assert not run.waits["duration_ns"].mask.any()


def test_the_summary_is_the_reports_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_job(JOB, tmp_path)
    with pytest.raises(SystemExit):
        main(["report", str(tmp_path), "--json"])
    said = json.loads(capsys.readouterr().out)
    assert hooktrace.load(tmp_path).summary() == said


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no .*nowhere; pass the logdir"):
        hooktrace.load(tmp_path / "nowhere")
