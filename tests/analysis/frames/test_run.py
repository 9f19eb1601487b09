"""What a user has in hand after ``hooktrace.load``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import hooktrace
from hooktrace.__main__ import main
from hooktrace.records.errors import UsageError
from hooktrace.testing.synthetic import SyntheticJob, write_job

JOB = SyntheticJob(ranks=3, steps=20, late_ms={1: 9.0})


def test_a_run_says_what_it_is(tmp_path: Path) -> None:
    write_job(JOB, tmp_path)
    run = hooktrace.load(tmp_path)
    assert repr(run) == "<run synthetic: 3 of 3 ranks, gloo, torch 2.13.0>"
    assert (run.ranks, run.models) == ([0, 1, 2], ["synthetic"])
    assert isinstance(run, hooktrace.Run)


def test_the_summary_is_the_reports_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_job(JOB, tmp_path)
    with pytest.raises(SystemExit):
        main(["report", str(tmp_path), "--json"])
    said = json.loads(capsys.readouterr().out)
    assert hooktrace.load(tmp_path).summary() == said


def test_frames_are_made_once(tmp_path: Path) -> None:
    """So that a column that a user adds stays."""
    pytest.importorskip("pandas")
    write_job(JOB, tmp_path)
    run = hooktrace.load(tmp_path)
    assert run.steps is run.steps
    assert len(run.steps) == 3 * 20


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no .*nowhere; pass the logdir"):
        hooktrace.load(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="no engine 'dask'; pass one of pandas, polars"):
        hooktrace.load(tmp_path, engine="dask")
