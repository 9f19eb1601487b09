"""Who reads a run, and the buckets of which steps."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from hooktrace.analysis.report import build_report
from hooktrace.analysis.run import files, load
from hooktrace.exporters.retention import Retention
from hooktrace.records.errors import UsageError
from hooktrace.records.files import find_records
from hooktrace.testing.synthetic import SyntheticJob, write_job
from tests.analysis.report.jobs import write_kept
from tests.analysis.report.test_command import call
from tests.distributed.harness import REPOSITORY
from tests.integrations.frameworks import ALONE, check_namespaces, needs_frameworks, run

JOB = SyntheticJob(ranks=3, steps=120, late_ms={1: 3.0})


def test_of_every_tenth_step_the_buckets_are_read(tmp_path: Path) -> None:
    """All steps count, and what is said of buckets is of those, and said to be."""
    write_job(JOB, tmp_path)
    whole, part = load(find_records(tmp_path)), load(find_records(tmp_path), every=10)
    for own, all_of_it in zip(part.tracks, whole.tracks, strict=True):
        assert own.steps.step.tolist() == all_of_it.steps.step.tolist()
        assert sorted(set(own.buckets.step.tolist())) == list(range(10, 121, 10))
        assert len(own.buckets) == 12 * len(JOB.bucket_bytes)
    (of_whole,), (model,) = (build_report(one).models for one in (whole, part))
    for name in ("steps", "period", "exposed", "overlap", "wire_bytes"):
        assert getattr(model.facts, name) == getattr(of_whole.facts, name)
    assert (model.facts.bucket_steps, model.facts.detailed) == (12, 12)
    assert [one.rank for one in model.facts.late] == [1]
    # Arrays of buckets have no place for the steps that have none: of a long run they are most.
    assert (len(model.arrays.steps), model.arrays.detailed.called.shape[1]) == (120, 12)
    took = [
        (track.buckets.done_after - track.buckets.ready_after)[track.buckets.bucket == 3]
        for track in part.tracks
    ]
    assert model.facts.buckets[3].duration.p50 == np.median(took)  # type: ignore[union-attr]
    assert build_report(part).missing == [
        "the buckets of every 10th step alone were read (--every): what is said of single buckets, "
        "of waits and of who is late is of these"
    ]


def test_what_a_writer_left_out_stays_out(tmp_path: Path) -> None:
    """Of its windows every third step is left, which stand for all; slow ones do not."""
    job = dataclasses.replace(JOB, steps=300, slow_every=50)
    write_kept(tmp_path, job, Retention(window_steps=20, window_every=100, first_steps=4))
    run = load(find_records(tmp_path), every=3)
    steps = run.tracks[0].steps
    kept = steps.step[~steps.having("detail_left_out")]
    assert (kept % 3 == 0).all()
    stands = steps.standing_for(np.ones(len(steps), bool))
    assert set(steps.step[stands].tolist()) <= set(kept.tolist())
    slow = steps.having("kept_by_window") | steps.having("kept_as_first")
    assert not (stands & ~slow).any()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--on", "spark://host"], "spark://host is no engine; pass --on local, dask://HOST:PORT"),
        (["--every", "0"], "--every 0 keeps no step; pass 1 or more"),
    ],
)
def test_what_cannot_read_is_refused(tmp_path: Path, options: list[str], said: str) -> None:
    write_job(JOB, tmp_path)
    for command in (["report", str(tmp_path)], ["compare", str(tmp_path), str(tmp_path)]):
        result = call(*command, *options)
        assert result.exit_code == 2
        assert said in result.stderr


def test_a_run_that_does_not_fit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_job(JOB, tmp_path)
    monkeypatch.setattr(files, "_A_BUCKET", 1 << 40)
    with pytest.raises(UsageError, match=r"GiB are free|are free; pass --every \d+, or more"):
        files.read_run(tmp_path)
    monkeypatch.setattr(files, "_A_BUCKET", 300)
    assert files.read_run(tmp_path).world_size == 3


@pytest.mark.slow
@pytest.mark.long
@needs_frameworks
def test_clusters_of_dask_and_ray_read_the_same(tmp_path: Path) -> None:
    """Real ones on this machine, of two workers each: report and comparison are equal."""
    write_job(JOB, tmp_path / "a")
    write_job(dataclasses.replace(JOB, seed=1), tmp_path / "b")
    script = REPOSITORY / "tests" / "integrations" / "scripts" / "reading_clusters.py"
    check_namespaces()
    printed = run([script, tmp_path / "a", tmp_path / "b"], tmp_path, within=ALONE)
    said = json.loads(printed.splitlines()[-1])
    assert set(said) == {"local", "dask", "ray"}
    assert said["dask"] == said["ray"] == said["local"]
    assert [model["facts"]["bucket_steps"] for model in said["local"][0]["models"]] == [30]
    assert len(said["local"][1]["comparisons"]) == 1
