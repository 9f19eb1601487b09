"""Made-up jobs of any kind, written as a run's files and read again."""

from __future__ import annotations

from pathlib import Path

from hooktrace.analysis.report.step_arrays import StepArrays, settled_steps
from hooktrace.analysis.tensorboard_plugin.scene import Scene, scene_of
from hooktrace.analysis.timeline import Timeline, load
from hooktrace.records.files import find_records
from hooktrace.testing.synthetic import SyntheticJob, write_job
from hooktrace.testing.synthetic_shards import ShardedJob as Replicated
from hooktrace.testing.synthetic_shards import write_sharded_job
from tests.analysis.report.sharded_jobs import ShardedJob, write_sharded


def timeline_of(job: SyntheticJob | Replicated, folder: Path) -> Timeline:
    """Write a job's files, and read them."""
    if isinstance(job, SyntheticJob):
        write_job(job, folder)
    elif isinstance(job, ShardedJob):
        write_sharded(job, folder)
    else:
        write_sharded_job(job, folder)
    return timeline_in(folder)


def timeline_in(folder: Path) -> Timeline:
    """Read the files of a run."""
    return load(find_records(folder))


def arrays_of(timeline: Timeline) -> StepArrays:
    """Return the steps of a run's only model that count."""
    (model,) = timeline.models
    found = settled_steps(timeline, model)
    assert found is not None
    return found


def tab_of(timeline: Timeline) -> Scene:
    """Return what the tab draws of a run's only model."""
    (model,) = timeline.models
    return scene_of(timeline, model)
