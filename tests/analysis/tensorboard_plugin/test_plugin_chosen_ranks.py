"""Which ranks a text names, and scenes of some of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from hooktrace.analysis.tensorboard_plugin.level_of_detail import picture
from hooktrace.analysis.tensorboard_plugin.plugin import as_strips, of_ranks, ranks_of
from hooktrace.testing.synthetic import SyntheticJob
from hooktrace.testing.synthetic_hangs import SyntheticHang, write_hung_job
from tests.analysis.runs import job_run, run_in, tab_of


def test_a_text_names_ranks() -> None:
    """Numbers and ranges of them; nothing names all."""
    assert ranks_of("0-3,12") == {0, 1, 2, 3, 12}
    assert ranks_of("") is None
    for wrong in ("a", "1-", "-1", "1,,2", " 1", "1-2-3", "0-9999999", "0-60000,0-60000"):
        with pytest.raises(ValueError, match="ranks"):
            ranks_of(wrong)


def test_a_strip_has_all_buckets_in_one_row(tmp_path: Path) -> None:
    """As many as before, of the ranks that were asked for alone."""
    job = SyntheticJob(ranks=4, steps=3)
    whole = tab_of(job_run(job, tmp_path))
    some = as_strips(of_ranks(whole, {1, 3, 99}))
    drawn = picture(some, 0, whole.extent, 30_000)
    assert [rank["rank"] for rank in drawn["ranks"]] == [1, 3]
    assert drawn["single"] + drawn["merged"] == 2 * 3 * 8
    assert {lane for rank in drawn["ranks"] for lane in rank["bars"]["lane"]} == {0}
    assert of_ranks(whole, None) is whole


def test_a_hang_stays_in_the_strip(tmp_path: Path) -> None:
    """In its one row where it was in a bucket's; over the lane where it was over all of it."""
    job = SyntheticJob(steps=12)
    write_hung_job(job, SyntheticHang(step=12, killed=(2,)), tmp_path)
    scene = tab_of(run_in(tmp_path))
    assert any(bar.lane for rank in scene.ranks for bar in rank.hangs)
    lanes = {bar.lane for rank in as_strips(scene).ranks for bar in rank.hangs}
    assert lanes == {0, None}
