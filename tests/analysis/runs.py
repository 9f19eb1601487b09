"""Made-up jobs of any kind, written as a run's files and read again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tensorboard.plugins.base_plugin import TBContext
from werkzeug.test import Client

from hooktrace.analysis.run import Run, load
from hooktrace.analysis.run.dense import StepArrays, settled_steps
from hooktrace.analysis.run.scene import Scene
from hooktrace.analysis.tensorboard_plugin import plugin
from hooktrace.analysis.tensorboard_plugin.level_of_detail import Look, picture
from hooktrace.records.files import find_records
from hooktrace.testing.synthetic import SyntheticJob, write_job
from hooktrace.testing.synthetic_shards import ShardedJob as Replicated
from hooktrace.testing.synthetic_shards import write_sharded_job
from tests.analysis.report.sharded_jobs import ShardedJob, write_sharded


def job_run(job: SyntheticJob | Replicated, folder: Path) -> Run:
    if isinstance(job, SyntheticJob):
        write_job(job, folder)
    elif isinstance(job, ShardedJob):
        write_sharded(job, folder)
    else:
        write_sharded_job(job, folder)
    return run_in(folder)


def run_in(folder: Path) -> Run:
    return load(find_records(folder))


def arrays_of(run: Run) -> StepArrays:
    """Return the steps of a run's only model that count."""
    (model,) = run.model_names
    found = settled_steps(run, model)
    assert found is not None
    return found


def tab_of(run: Run) -> Scene:
    """Return what the tab draws of a run's only model."""
    (model,) = run.model_names
    return Scene(run, model)


def drawn(
    scene: Scene, t0: int, t1: int, width: int, *, ranks: Iterable[int] | None = None, **look: bool
) -> dict[str, Any]:
    """Return what the tab draws of a stretch of time, of ``ranks`` by their places."""
    places = range(len(scene.numbers)) if ranks is None else ranks
    return picture(scene, Look(t0, t1, width, [*places], **look))


def asking(folder: Path) -> Callable[..., Any]:
    """Return a function that asks the tab of the run in a folder, which is read as a whole."""
    apps = plugin.CommTimeline(TBContext(logdir=str(folder))).get_plugin_apps()

    def ask(route: str, **parameters: Any) -> Any:
        # A busy machine would read a part of it in the time that an answer may take.
        with patch.object(plugin, "_BUDGET_S", 60.0):
            response = Client(apps[route]).get(route, query_string={"run": ".", **parameters})
        return json.loads(response.get_data())

    return ask
