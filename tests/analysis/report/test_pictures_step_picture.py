"""One step drawn to scale: which one, and every bucket of every rank in it."""

from __future__ import annotations

from pathlib import Path

from hooktrace.analysis.report.pictures import step_pictures
from hooktrace.testing.synthetic import SyntheticJob
from tests.analysis.runs import arrays_of, job_run


def test_a_typical_step_and_the_slowest(tmp_path: Path) -> None:
    """In step 10 the only collective takes ten times as long; all ranks' buckets are drawn."""
    job = SyntheticJob(ranks=2, steps=16, bucket_bytes=(4_000_000,), jitter_ms=0.0, slow_every=9)
    (typical, usual), (slowest, slow) = step_pictures(arrays_of(job_run(job, tmp_path)))
    assert typical.startswith("Typical step: ")
    assert slowest.startswith("Slowest step: 10, ")
    for picture in (usual, slow):
        text = picture.__html__()
        assert text.count('class="tip"') == 2
        assert text.count("rank 0, bucket 0: ready at") == 1
        assert 'class="wire" d="M' in text


def test_one_step_is_drawn_once(tmp_path: Path) -> None:
    """Without a next one nobody knows how long it took."""
    ((title, _),) = step_pictures(arrays_of(job_run(SyntheticJob(ranks=2, steps=1), tmp_path)))
    assert title.startswith("Step: ")
