"""Runs of made-up jobs, read again: what each view makes of them, and commands that read them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tensorboard.plugins.base_plugin import TBContext
from typer.testing import CliRunner, Result
from werkzeug.test import Client

from hooktrace.__main__ import main
from hooktrace.analysis.compare import Measures, measure
from hooktrace.analysis.report import RunReport, build_report
from hooktrace.analysis.report.facts import ModelFacts
from hooktrace.analysis.run import Run, load
from hooktrace.analysis.run.dense import StepArrays, settled_steps
from hooktrace.analysis.run.scene import Scene
from hooktrace.analysis.tensorboard_plugin import plugin
from hooktrace.analysis.tensorboard_plugin.level_of_detail import Look, picture
from hooktrace.records.files import find_records
from hooktrace.testing.synthetic import SyntheticJob, write_job
from hooktrace.testing.synthetic_shards import ShardedJob, write_sharded_job

Job = SyntheticJob | ShardedJob
BASE = SyntheticJob(ranks=3, steps=60)


def call(*arguments: object) -> Result:
    """Return what the command line does."""
    return CliRunner().invoke(main, [str(a) for a in arguments])


def job_run(job: Job | Callable[[Path], object], folder: Path) -> Run:
    """Return the run of a job, or of what writes one, whose files are in a folder then."""
    if isinstance(job, SyntheticJob):
        write_job(job, folder)
    elif isinstance(job, ShardedJob):
        write_sharded_job(job, folder)
    else:
        job(folder)
    return run_in(folder)


def measured(job: Job | Callable[[Path], object], folder: Path, name: str) -> Measures:
    """Return what is compared of a job's first model."""
    run = job_run(job, folder)
    found = measure(run, run.model_names[0], name)
    assert found is not None
    return found


def report_of(folder: Path) -> RunReport:
    return build_report(run_in(folder))


def facts_of(folder: Path) -> ModelFacts:
    """Return the facts of the only model in a folder."""
    (model,) = report_of(folder).models
    return model.facts


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
