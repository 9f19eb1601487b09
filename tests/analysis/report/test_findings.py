"""What is small, and what is said of hangs of units or of no model; jobs are in ``golden/``."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from hooktrace.analysis.report import build_report
from hooktrace.analysis.report.findings import findings, hang_findings
from hooktrace.testing.synthetic import SyntheticJob, write_job
from tests.analysis.report.jobs import facts_of, report_of
from tests.analysis.runs import run_in
from tests.analysis.told import TOLD


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
    fact = facts_of(tmp_path).hangs[0]
    told = "blocks.2 all-gather (forward) of step 12 has waited 31 s on rank 0 for rank 2"
    unit = replace(fact, kind="uneven_inputs", unit="blocks.2 all-gather (forward)", sentence=told)
    (found,) = hang_findings([unit])
    assert found.sentence == f"{told}."
    assert found.remedy == "Give all ranks as many batches."


def test_of_one_model_no_hang_outside_of_all_is_told(tmp_path: Path) -> None:
    """At a barrier before any step no model is known; with --model it is not asked for."""
    TOLD["hang outside of all hooks"](tmp_path)
    assert [found.sentence for found in report_of(tmp_path).findings] == ["Rank 0 waits."]
    assert build_report(run_in(tmp_path), model="synthetic").findings == []
