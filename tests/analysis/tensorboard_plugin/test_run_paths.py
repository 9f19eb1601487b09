"""Critical paths as the page has them: in the picture's clock and rows."""

from __future__ import annotations

from pathlib import Path

from hooktrace.analysis.tensorboard_plugin.run_paths import RunPaths
from hooktrace.testing.synthetic import SyntheticJob
from tests.analysis.runs import job_run, tab_of


def paths_of(folder: Path, job: SyntheticJob) -> RunPaths:
    run = job_run(job, folder)
    return RunPaths(tab_of(run))


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
