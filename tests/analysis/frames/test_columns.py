"""Which steps stand for all; what is known of each column is in ``golden/``."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from hooktrace.records import CompletedStep
from hooktrace.testing.synthetic import SyntheticJob
from tests.analysis.report.jobs import write_changed
from tests.analysis.run.test_tables import listed, table_of


def test_steps_whose_buckets_stand_for_all_are_marked(tmp_path: Path) -> None:
    """Not those that the file has for being slow, where it left others out."""
    job = SyntheticJob(ranks=2, steps=8, bucket_bytes=(4_000_000,))

    def kept(rank: int, completed: CompletedStep) -> CompletedStep:
        step, buckets = completed
        if step.step % 4 == 0:
            return replace(step, kept_for="slow"), buckets
        if step.step % 4 == 1:
            return replace(step, detail_kept=False), ()
        return replace(step, kept_for="window"), buckets

    write_changed(tmp_path, job, kept)
    table = table_of(tmp_path, "steps")
    of_step = zip(listed(table["step"]), listed(table["stands_for_all"]), strict=True)
    assert {n for n, stands in of_step if stands} == {2, 3, 6, 7}
