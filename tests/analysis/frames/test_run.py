"""What a user has in hand after ``hooktrace.load``."""

from __future__ import annotations

import json
from pathlib import Path

import hooktrace
from hooktrace.testing.synthetic import SyntheticJob, write_job
from tests.analysis.report.test_command import call

JOB = SyntheticJob(ranks=3, steps=20, late_ms={1: 9.0})


def test_a_run_says_what_it_is(tmp_path: Path) -> None:
    write_job(JOB, tmp_path)
    run = hooktrace.load(tmp_path)
    assert repr(run) == "<run synthetic: 3 of 3 ranks, gloo, torch 2.13.0>"
    assert isinstance(run, hooktrace.Run)
    ranks, models = run.ranks, run.models
    assert list(ranks["rank"]) == [0, 1, 2]
    assert [len(models), models["model"][0], models["ranks"][0]] == [1, "synthetic", 3]
    assert models["counts"][0] == max(ranks["counts"]) == sum(run.steps["counts"]) / 3


def test_the_summary_is_the_reports_json(tmp_path: Path) -> None:
    write_job(JOB, tmp_path)
    said = json.loads(call("report", tmp_path, "--json").stdout)
    assert hooktrace.load(tmp_path).summary() == said
