"""What the report says of hangs: on top where they did not end, once, and of no step twice."""

from __future__ import annotations

import json
from pathlib import Path

from msgspec.structs import replace

from hooktrace.analysis.report import build_report
from hooktrace.analysis.report.findings import hang_findings
from hooktrace.analysis.run import Hang
from hooktrace.records.codec import RecordEncoder
from hooktrace.records.files import record_path
from hooktrace.testing.synthetic import SyntheticJob
from hooktrace.testing.synthetic_hangs import SyntheticHang, write_hung_job
from tests.analysis.report.jobs import facts_of, found_in, report_of
from tests.analysis.report.test_command import call
from tests.analysis.runs import run_in

JOB = SyntheticJob(steps=30)
S = 1_000_000_000


def test_a_hang_without_end_is_on_top(tmp_path: Path) -> None:
    """Before what is wrong with gradients, with the rank that all wait for, and what to do.

    Terminal, page and JSON have it in the same words.
    """
    write_hung_job(JOB, SyntheticHang(step=12), tmp_path)
    first, *others = found_in(tmp_path)
    assert (first.rule, first.severity, first.is_wrong) == ("ranks_hung", "fail", True)
    assert (first.rank, first.bucket, first.gain_ns) == (2, 5, None)
    assert first.sentence == (
        "Bucket 5 of step 12 has waited 31 s on ranks 0, 1, 3 for rank 2, which is in "
        "`data.py:88 next_batch`, 1 step behind."
    )
    assert first.evidence == (
        "a rank is busy elsewhere: loading data, writing a checkpoint, evaluating",
        "no end of it is recorded",
        "recorded in the files of ranks 0 to 3; hooktrace hang says more",
    )
    assert first.remedy.startswith("Look at the line it is at; have")
    assert "ranks_hung" not in [one.rule for one in others]
    page = tmp_path / "report.html"
    printed = call("report", tmp_path, "--html", page)
    assert "hang Bucket 5 of step 12 has waited 31 s" in " ".join(printed.output.split())
    html = page.read_text()
    assert "Bucket 5 of step 12 has waited 31 s" in html
    assert "<div class=gain>hang" in html
    (model,) = json.loads(call("report", tmp_path, "--json").output)["models"]
    assert model["findings"][0]["severity"] == "fail"
    assert model["facts"]["hangs"][0]["waiting"] == [0, 1, 3]


def test_a_hang_of_a_sharded_model_is_told_by_its_unit(tmp_path: Path) -> None:
    """Whose name is written as it is; and there is no DDP to pass anything to."""
    name = "blocks.2 all-gather (forward)"
    record = write_hung_job(JOB, SyntheticHang(step=12, kind="uneven_inputs"), tmp_path)
    message = f"{name} of step 12 has waited 31 s on rank 0 for rank 2, which ends its training"
    (fact,) = facts_of(tmp_path).hangs
    remedy = "give all ranks as many batches"
    told = replace(record, unit=name, message=f"{message}; {remedy}")
    assert Hang(told, 0, None, None, False, (0,)).sentence == message
    (found,) = hang_findings([replace(fact, unit=name, sentence=message)])
    assert found.sentence == f"{message}."
    assert found.remedy == "Give all ranks as many batches."


def test_a_hang_that_went_on_is_milder_and_told_once(tmp_path: Path) -> None:
    """It has what it took, of which no other step gains; no stall, no slow step tells of it too."""
    write_hung_job(JOB, SyntheticHang(step=12, went_on_after_s=42), tmp_path)
    hang, *others = found_in(tmp_path)
    assert (hang.rule, hang.severity, hang.is_wrong) == ("ranks_hung", "warn", False)
    assert hang.gain_ns is None
    assert hang.evidence[1] == "it went on after at most 42 s"
    assert any(one.gain_ns for one in others)
    assert {"steps_stalled", "slow_steps_cost"}.isdisjoint(one.rule for one in others)


def test_other_stalls_are_told_still(tmp_path: Path) -> None:
    """The hang takes its own step only."""
    job = SyntheticJob(steps=30, late_ms={1: 3000.0}, late_every=25)
    write_hung_job(job, SyntheticHang(step=12, went_on_after_s=42), tmp_path)
    (stalled,) = [one for one in found_in(tmp_path) if one.rule == "steps_stalled"]
    assert stalled.sentence.startswith("2 steps stalled, steps 1, 26:")


def test_a_hang_in_the_first_step_is_told_without_any_statistics(tmp_path: Path) -> None:
    """The model has no step that has settled, so it stands with the run."""
    write_hung_job(JOB, SyntheticHang(step=1), tmp_path)
    report = report_of(tmp_path)
    assert report.models == []
    (finding,) = report.findings
    assert finding.sentence.startswith("Bucket 5 of step 1 has waited 31 s")


def test_a_hang_outside_of_all_hooks_is_told_with_the_run(tmp_path: Path) -> None:
    """At a barrier before any step no model is known; with --model it is not asked for."""
    record = write_hung_job(JOB, SyntheticHang(step=12), tmp_path)
    other = replace(record, hang=1, model="", hook="", step=0, bucket=-1, message="rank 0 waits")
    with record_path(tmp_path, 0).open("ab") as file:
        file.write(RecordEncoder().record(other))
    (finding,) = report_of(tmp_path).findings
    assert (finding.sentence, finding.bucket) == ("Rank 0 waits.", None)
    assert build_report(run_in(tmp_path), model=JOB.model).findings == []
