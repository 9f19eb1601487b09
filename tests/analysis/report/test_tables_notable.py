"""At many ranks the notable ones are shown, and the red row is named in words."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from hooktrace.analysis.report.tables import red_row, split_buckets, split_ranks
from hooktrace.testing.synthetic import SyntheticJob, write_job
from tests.analysis.report.jobs import QUIET, report_of
from tests.analysis.shown import page_of

MANY = SyntheticJob(
    ranks=70, steps=5, late_ms={37: 9.0}, bucket_bytes=(400_000,) * 110, jitter_ms=0.0
)


@pytest.mark.slow
def test_the_late_rank_is_shown_and_the_others_are_folded(tmp_path: Path) -> None:
    write_job(MANY, tmp_path)
    report = report_of(tmp_path)
    (model,) = report.models
    shown, folded = split_ranks(model.facts)
    assert 37 in {rank.rank for rank in shown}
    assert len(shown) < 32
    assert len(shown) + len(folded) == 70
    shown_buckets, folded_buckets = split_buckets(model.facts)
    assert 109 in {bucket.bucket for bucket in shown_buckets}
    assert len(shown_buckets) + len(folded_buckets) == 110
    assert red_row(model.facts, model.arrays).startswith(
        "The reddest is rank 37 (host-4): 9.00 ms after the first rank at bucket "
    )
    text = page_of(report)
    assert f"<summary>{len(folded)} more ranks</summary>" in text
    assert "64 of 70 ranks" in text
    assert len(text) < 4_000_000


def test_few_ranks_are_all_shown(tmp_path: Path) -> None:
    write_job(dataclasses.replace(QUIET, clocks=False), tmp_path)
    (model,) = report_of(tmp_path).models
    assert (split_ranks(model.facts)[1], split_buckets(model.facts)[1]) == ([], [])
    assert red_row(model.facts, model.arrays) == "", "nobody's clock is known"
