"""Critical paths as the page has them: in the picture's clock and rows."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from hooktrace.analysis.tensorboard_plugin.run_paths import step_path
from hooktrace.testing.synthetic import SyntheticJob
from tests.analysis.runs import job_run, tab_of


def test_segments_lie_in_the_picture_and_sum_up_to_the_step(tmp_path: Path) -> None:
    job = SyntheticJob(ranks=4, steps=6, late_ms={2: 12.0})
    scene = tab_of(job_run(job, tmp_path))
    found, before = step_path(scene, 3), step_path(scene, 2)
    segments = found["segments"]
    for one, following in pairwise(segments):
        assert one["end"] == following["start"]
    assert segments[0]["start"] == before["segments"][-1]["end"]
    assert (segments[0]["kind"], segments[0]["rank"], segments[0]["lane"]) == ("compute", 2, 2)
    assert all(one["row"] == one["bucket"] for one in segments)
    assert found["title"].startswith("Step 3 took ")
    assert found["rows"][0][0] == "compute of rank 2"
    assert 0 <= step_path(scene, 1)["segments"][0]["start"] < 20_000_000
