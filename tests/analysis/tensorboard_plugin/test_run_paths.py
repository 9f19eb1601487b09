"""Critical paths as the page has them: in the picture's clock and rows, and whom ranks wait for."""

from __future__ import annotations

from pathlib import Path

from hooktrace.analysis.tensorboard_plugin.run_paths import RunPaths
from hooktrace.testing.synthetic import SyntheticJob
from tests.analysis.runs import job_run, tab_of


def paths_of(folder: Path, job: SyntheticJob) -> RunPaths:
    run = job_run(job, folder)
    return RunPaths(run, tab_of(run))


def test_segments_lie_in_the_picture_and_sum_up_to_the_step(tmp_path: Path) -> None:
    paths = paths_of(tmp_path, SyntheticJob(ranks=4, steps=6, late_ms={2: 12.0}))
    found = paths.step(3)
    segments = found["segments"]
    assert sum(one["end"] - one["start"] for one in segments) == found["end"] - found["start"]
    assert segments[0]["start"] == found["start"] == paths.step(2)["end"]
    assert (segments[0]["kind"], segments[0]["rank"], segments[0]["lane"]) == ("compute", 2, 2)
    assert all(one["row"] == one["bucket"] for one in segments)
    assert found["parts"][0][0] == "compute of rank 2"
    assert 0 <= paths.step(1)["start"] < 20_000_000


def test_sums_tell_of_how_many_steps_they_are(tmp_path: Path) -> None:
    sums = paths_of(tmp_path, SyntheticJob(ranks=4, steps=6, late_ms={2: 12.0})).sums
    assert (sums["steps"], sums["of"], sums["why_unknown"]) == (6, 6, None)
    assert "ms compute of rank 2" in sums["sentence"]
    (of_all, share), (whom, of_that) = sums["waiting"]
    assert (of_all, whom) == ("of all wire time", "for rank 2")
    percent = float(share.partition(" %")[0])
    assert abs(percent - 100 * 3 * 12 / (3 * 12 + 4 * 4.2)) < 3  # a transfer takes 4.2 ms
    assert of_that == share


def test_it_says_why_nothing_is_known(tmp_path: Path) -> None:
    paths = paths_of(tmp_path, SyntheticJob(ranks=2, steps=3, clocks=False))
    assert paths.step(2)["why_unknown"] == "nobody measured the clock of rank 1"
    assert paths.step(2)["segments"] == []
    assert paths.sums["parts"] == []
    alone = paths_of(tmp_path / "alone", SyntheticJob(ranks=1, steps=3))
    assert alone.sums["waiting"] == [["of all wire time", "0 %"]]
