"""Which steps count, and why the others do not."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from hooktrace.analysis.run import REASONS, reasons
from hooktrace.records import CompletedStep
from hooktrace.testing.synthetic import SyntheticJob
from hooktrace.testing.synthetic_hangs import SyntheticHang, write_hung_job
from tests.analysis.report.jobs import write_changed
from tests.analysis.runs import run_in

JOB = SyntheticJob(ranks=2, steps=8, bucket_bytes=(1_000_000,) * 2)
FLAGS = ("warmup", "join_dummy", "complete", "checked")


def why(folder: Path) -> list[list[str]]:
    return [[REASONS[i] for i in own.tolist()] for own in reasons(run_in(folder))]


def test_of_several_reasons_the_first_stands(tmp_path: Path) -> None:
    """A probe of earlier buckets says nothing of those that there are, so it is of these."""

    def change(rank: int, completed: CompletedStep) -> CompletedStep:
        step, buckets = completed
        return (
            replace(
                step, warmup=step.step == 1, complete=step.step != 2, checked=step.step < 5,
                rebuild=1 if step.step < 4 else 2,
            ),
            buckets,
        )  # fmt: skip

    write_changed(tmp_path, JOB, change)
    expected = ["warmup", "incomplete", "rebuild", "checked", *["counts"] * 4]
    assert why(tmp_path) == [expected] * 2


def test_a_rebuild_that_nothing_counts_of_leaves_none_out(tmp_path: Path) -> None:
    """The last steps are of other buckets, and each of them was checked or broke off."""

    def change(rank: int, completed: CompletedStep) -> CompletedStep:
        step, buckets = completed
        if step.step < 7:
            return completed
        return replace(step, rebuild=2, checked=step.step == 7, complete=step.step < 8), buckets

    write_changed(tmp_path, JOB, change)
    assert why(tmp_path) == [[*["counts"] * 6, "checked", "incomplete"]] * 2


def test_a_hang_takes_its_step_and_the_late_rank_s_one_before(tmp_path: Path) -> None:
    """Whose period ends where the step begins that it comes late to."""
    write_hung_job(JOB, SyntheticHang(step=5, bucket=1, rank=1, went_on_after_s=40), tmp_path)
    on_time, late = why(tmp_path)
    assert on_time == [*["counts"] * 4, "hang", *["counts"] * 3]
    assert late == [*["counts"] * 3, "hang", "hang", *["counts"] * 3]
