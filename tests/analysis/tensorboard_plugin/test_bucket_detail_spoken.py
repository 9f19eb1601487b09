"""A bucket in a sentence."""

from __future__ import annotations

from pathlib import Path

from hooktrace.analysis.tensorboard_plugin.bucket_detail import bucket_detail, row_of
from hooktrace.testing.synthetic import SyntheticJob
from tests.analysis.runs import job_run, tab_of


def spoken(folder: Path, job: SyntheticJob, rank: int) -> str:
    made = tab_of(job_run(job, folder))
    text: str = bucket_detail(made, rank, row_of(made, rank, 3, 0))["spoken"]
    return text


def test_who_waits_and_for_whom(tmp_path: Path) -> None:
    """The rank that waits, and the last one."""
    job = SyntheticJob(ranks=3, steps=4, late_ms={1: 5.0}, jitter_ms=0.0, codec_ms=0.05)
    text = spoken(tmp_path / "known", job, 0)
    assert text == (
        "rank 0, step 3, bucket 0: 9.70 ms, wire 9.60 ms, of which 5.00 ms waiting for rank 1, "
        "compress 0.05 ms, decompress 0.05 ms"
    )
    assert "(waits for nobody: it is the last rank)" in spoken(tmp_path / "last", job, 1)


def test_what_is_not_known_is_not_spoken_of_as_known(tmp_path: Path) -> None:
    """One rank waits for nobody; without clocks it is not known for whom."""
    text = spoken(tmp_path / "one", SyntheticJob(ranks=1, steps=4), 0)
    assert "(one rank waits for nobody)" in text
    text = spoken(tmp_path / "unknown", SyntheticJob(ranks=3, steps=4, clocks=False), 0)
    assert "of which 0.05 ms waiting, " in text
