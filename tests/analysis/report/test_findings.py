"""What is small, and what is said of hangs of units or of no model; jobs are in ``golden/``."""

from __future__ import annotations

from dataclasses import replace as like
from pathlib import Path

from msgspec.structs import replace

from hooktrace.analysis.report import build_report
from hooktrace.analysis.report.findings import findings, hang_finding
from hooktrace.analysis.run import hangs
from hooktrace.records import AnomalyRecord
from hooktrace.testing.synthetic import SyntheticJob, write_job
from tests.analysis.report.jobs import facts_of, report_of
from tests.analysis.run.files import add
from tests.analysis.runs import run_in
from tests.analysis.told import TOLD


def stall(rank: int, step: int) -> AnomalyRecord:
    return AnomalyRecord(
        kind="stall", model="synthetic", hook="allreduce_hook", rebuild=1, step=step, bucket=-1,
        stage="exposed", time_ns=step * 10**8, message="10 s, where 2 ms is usual", rank=rank,
    )  # fmt: skip


def test_a_gain_below_the_noise_is_small(tmp_path: Path) -> None:
    """However large a share of the step: nobody could tell that it came true."""
    write_job(SyntheticJob(ranks=2, steps=40, bytes_per_second=2e8), tmp_path)
    facts = facts_of(tmp_path)
    for model, is_small in ((facts, False), (replace(facts, period_noise_ns=1e9), True)):
        (found,) = [one for one in findings(model) if "a 16-bit hook" in one.sentence]
        assert found.is_small == is_small


def test_a_hang_of_a_sharded_model_is_told_by_its_unit(tmp_path: Path) -> None:
    """Whose name is written as it is; and there is no DDP to pass anything to."""
    TOLD["hang and stalls"](tmp_path)
    (hang,) = hangs(run_in(tmp_path))
    told = "blocks.2 all-gather (forward) of step 12 has waited 31 s on rank 0 for rank 2"
    unit = "blocks.2 all-gather (forward)"
    record = replace(hang.record, kind="uneven_inputs", unit=unit, message=told)
    found = hang_finding(like(hang, record=record))
    assert found.sentence == f"{told}."
    assert found.fix == "Give all ranks as many batches."


def test_stalls_are_told_as_ranks_recorded_them(tmp_path: Path) -> None:
    """With the steps of all ranks; but for a hang's step, of which the hang says more."""
    TOLD["hang and stalls"](tmp_path)
    for rank, steps in ((0, (12, 25)), (3, (25, 50))):
        add(tmp_path, rank, *(stall(rank, step) for step in steps))
    (found,) = [one for one in report_of(tmp_path).models[0].findings if one.rule == "stall"]
    assert (found.rank, found.steps, found.severity, found.is_wrong) == (0, (25, 50), "warn", False)
    assert found.sentence.endswith("beyond the usual: first seen at step 25, rank 0.")
    assert found.evidence[1] == "seen on ranks 0, 3, in steps 25, 50"


def test_of_one_model_no_hang_outside_of_all_is_told(tmp_path: Path) -> None:
    """At a barrier before any step no model is known; with --model it is not asked for."""
    TOLD["hang outside of all hooks"](tmp_path)
    assert [found.sentence for found in report_of(tmp_path).findings] == ["Rank 0 waits."]
    assert build_report(run_in(tmp_path), model="synthetic").findings == []
