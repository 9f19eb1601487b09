"""What is small, and what is said of hangs of units or of no model; jobs are in ``golden/``."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from msgspec.structs import replace

from hooktrace.analysis.report import build_report
from hooktrace.analysis.report.findings import findings, hang_findings
from hooktrace.analysis.run import Hang
from hooktrace.testing.synthetic import SyntheticJob, write_job
from hooktrace.testing.synthetic_hangs import SyntheticHang, write_hung_job
from tests.analysis.report.jobs import facts_of as facts_in
from tests.analysis.report.jobs import one, report_of
from tests.analysis.runs import run_in
from tests.analysis.told import TOLD


def test_a_gain_below_the_noise_is_small(tmp_path: Path) -> None:
    """However large a share of the step: nobody could tell that it came true."""
    job = dataclasses.replace(SyntheticJob(), ranks=2, steps=40, bytes_per_second=2e8)
    write_job(job, tmp_path)
    (model,) = report_of(tmp_path).models
    unsure = replace(model.facts, period_noise_ns=1e9)
    assert not one(findings(model.facts), "a 16-bit hook").is_small
    assert one(findings(unsure), "a 16-bit hook").is_small


def test_a_hang_of_a_sharded_model_is_told_by_its_unit(tmp_path: Path) -> None:
    """Whose name is written as it is; and there is no DDP to pass anything to."""
    name = "blocks.2 all-gather (forward)"
    record = write_hung_job(
        SyntheticJob(steps=30), SyntheticHang(step=12, kind="uneven_inputs"), tmp_path
    )
    message = f"{name} of step 12 has waited 31 s on rank 0 for rank 2, which ends its training"
    (fact,) = facts_in(tmp_path).hangs
    remedy = "give all ranks as many batches"
    told = replace(record, unit=name, message=f"{message}; {remedy}")
    assert Hang(told, 0, None, None, False, (0,)).record.sentence == message
    (found,) = hang_findings([replace(fact, unit=name, sentence=message)])
    assert found.sentence == f"{message}."
    assert found.remedy == "Give all ranks as many batches."


def test_of_one_model_no_hang_outside_of_all_is_told(tmp_path: Path) -> None:
    """At a barrier before any step no model is known; with --model it is not asked for."""
    TOLD["hang outside of all hooks"](tmp_path)
    assert [found.sentence for found in report_of(tmp_path).findings] == ["Rank 0 waits."]
    assert build_report(run_in(tmp_path), model="synthetic").findings == []
