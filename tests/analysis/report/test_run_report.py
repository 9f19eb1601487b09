"""What a CI job reads: findings and facts of a run, by the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from hooktrace.records import CompletedStep
from hooktrace.records.codec import RecordEncoder
from hooktrace.records.files import record_path
from hooktrace.records.lines import Losses
from hooktrace.testing.synthetic import SyntheticJob, write_job
from tests.analysis.report.jobs import write_changed
from tests.analysis.report.test_command import call

JOB = SyntheticJob(ranks=3, steps=30, late_ms={1: 5.0}, anomaly_rank=2, clocks=True)


def report_of(folder: Path, *options: object) -> dict[str, Any]:
    """Return what the command prints, which is JSON and nothing else."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    result = call("report", folder, "--json", *options)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout, parse_constant=refuse)
    return found


def test_a_job_can_assert_on_findings(tmp_path: Path) -> None:
    """By rule, rank and gain, and on facts by bucket and rank, with what nobody knows as null.

    A page that is asked for is written beside it.
    """
    write_job(JOB, tmp_path)
    out = tmp_path / "report.html"
    report = report_of(tmp_path, "--html", out)
    assert out.read_text().startswith("<!doctype html>")
    (model,) = report["models"]
    by_rule = {one["rule"]: one for one in model["findings"]}
    late = by_rule["ranks_wait"]
    assert (late["rank"], late["bucket"], late["is_wrong"]) == (1, 0, False)
    assert 4e6 < late["gain_ns"] < 6e6
    wrong = by_rule["nonfinite_gradient"]
    assert (wrong["rank"], wrong["bucket"], wrong["is_wrong"]) == (2, 1, True)
    assert wrong["gain_ns"] is None
    exposed = by_rule["communication_is_exposed"]
    assert exposed["gain_ns"] == model["facts"]["exposed"]["p50"]
    assert report["schema"] == 1
    assert (report["ranks"], report["run"]["world_size"], report["missing"]) == (3, 3, [])
    facts = report["models"][0]["facts"]
    assert (facts["model"], facts["steps"], len(facts["buckets"])) == ("synthetic", 30, 8)
    assert facts["buckets"][0]["stages"].keys() == {"compress", "wire", "decompress"}
    assert facts["buckets"][0]["error"] is None
    assert [rank["rank"] for rank in facts["ranks"]] == [0, 1, 2]
    assert facts["exposed_share"] == facts["exposed"]["p50"] / facts["period"]["p50"]


def test_what_went_when_the_files_were_full_is_said(tmp_path: Path) -> None:
    """A run whose oldest parts are gone, and records that no part could hold, each with its why."""
    write_job(SyntheticJob(ranks=1, steps=10), tmp_path)
    end = RecordEncoder().record(Losses(closed=True))
    full = Losses(
        lost={"buckets": 3}, removed={"parts": 2, "steps": 4000, "buckets": 50}, closed=True
    )
    path = record_path(tmp_path, 0)
    path.write_bytes(path.read_bytes().replace(end, RecordEncoder().record(full)))
    lost, removed = report_of(tmp_path)["missing"]
    assert lost.startswith("rank 0: 3 buckets are too large for a part of the file")
    assert removed.startswith("rank 0: 4,000 steps went with the oldest parts")


def test_a_rank_that_has_run_out_of_data_is_told(tmp_path: Path) -> None:
    """Its steps under join() are in no number, and the others' are."""

    def shadow(rank: int, completed: CompletedStep) -> CompletedStep:
        step, buckets = completed
        if rank != 1 or step.step <= 20:
            return completed
        return replace(step, shadow=True), tuple(replace(b, shadow=True) for b in buckets)

    write_changed(tmp_path, JOB, shadow)
    report = report_of(tmp_path)
    assert report["missing"] == [
        "rank 1: steps after it had run out of data (join), out of all numbers: 10"
    ]
    assert [rank["steps"] for rank in report["models"][0]["facts"]["ranks"]] == [30, 20, 30]


def test_why_nobody_knows_what_is_sent(tmp_path: Path) -> None:
    """Of an opaque hook it is looked up on sampled steps, of which there may be none."""

    def opaque(rank: int, completed: CompletedStep) -> CompletedStep:
        step, buckets = completed
        unknown = tuple(replace(b, wire_bytes=None, bus_bytes=None) for b in buckets)
        return replace(step, wire_bytes=None, bus_bytes=None), unknown

    write_changed(tmp_path, SyntheticJob(ranks=2, steps=10), opaque)
    (why,) = report_of(tmp_path)["missing"]
    assert why.startswith("what synthetic sends is not known: its hook is opaque")


def test_a_file_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    """By the report and by ``hooktrace hang``; the report is of the others."""
    write_job(SyntheticJob(ranks=3, steps=10), tmp_path)
    path = record_path(tmp_path, 1)
    path.unlink()
    path.symlink_to("/dev/zero")
    for command in ("report", "hang"):
        result = call(command, tmp_path)
        assert result.exit_code == 0, result.output
        text = " ".join(result.output.split())
        assert "rank00001.jsonl" in text
        assert "it is not a regular file; put a file there that you may read" in text
        assert "no record file" not in text
        assert "no file" not in text
