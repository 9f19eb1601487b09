"""Which runs can serve, and what is said to those that cannot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from msgspec.structs import replace as changed

from hooktrace.analysis.timeline import Timeline, load
from hooktrace.analysis.whatif.calibration import read_calibration
from hooktrace.records.errors import UsageError
from hooktrace.records.files import find_records
from tests.analysis.report.sharded_jobs import ShardedJob, write_sharded

from .calibrated_run import MODEL


def without(timeline: Timeline, kind: str) -> Timeline:
    """Return a timeline without one kind of records."""
    tracks = [
        replace(track, records=replace(track.records, **{kind: []})) for track in timeline.tracks
    ]
    return replace(timeline, tracks=tracks)


def with_run(timeline: Timeline, world_size: int) -> Timeline:
    """Return the files of the first ranks of a job of so many."""
    tracks = []
    for track in timeline.tracks[:world_size]:
        run = track.records.run
        assert run is not None
        of = changed(run, world_size=world_size)
        tracks.append(replace(track, records=replace(track.records, run=of)))
    return replace(timeline, tracks=tracks, clocks=timeline.clocks[:world_size])


def with_hook(timeline: Timeline, hook: str) -> Timeline:
    """Return a run whose hook is called otherwise."""
    return replace(timeline, tracks=[replace(t, models=[(MODEL, hook)]) for t in timeline.tracks])


def test_runs_that_cannot_serve_are_refused(calibrated: Timeline) -> None:
    """Each error ends in what to do."""
    for timeline, reason in (
        (without(calibrated, "computes"), r"no calibration.*Tracer\(calibrate=True\)"),
        (without(calibrated, "layouts"), "do not say which parameters.*record the run again"),
        (with_run(calibrated, 1), "one rank.*record a run of two or more"),
        (with_hook(calibrated, "my_hook"), "my_hook.*a hook of `hooktrace hooks`"),
    ):
        with pytest.raises(UsageError, match=reason):
            read_calibration(timeline, MODEL)
    with pytest.raises(UsageError, match=r"no model 'other'.*pass net"):
        read_calibration(calibrated, "other")


def test_a_sharded_run_is_refused_by_name(tmp_path: Path) -> None:
    """What-if knows buckets, and of units it says so, before anything about calibration."""
    write_sharded(ShardedJob(steps=5), tmp_path)
    timeline = load(find_records(tmp_path))
    with pytest.raises(UsageError, match=r"sharded by fully_shard.*does not take units yet"):
        read_calibration(timeline, "net")
