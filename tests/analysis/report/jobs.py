"""Jobs of which one knows what they are like, and what a report says of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hooktrace.analysis.report import RunReport, build_report
from hooktrace.analysis.report.facts import ModelFacts
from hooktrace.exporters import RecordFileExporter
from hooktrace.exporters.retention import Retention
from hooktrace.records import Batch, CompletedStep
from hooktrace.testing.rank_file import rank_file
from hooktrace.testing.synthetic import SyntheticJob, simulate
from tests.analysis.run.files import write_ranks
from tests.analysis.runs import run_in

MS = 1_000_000
Change = Callable[[int, CompletedStep], CompletedStep]


def report_of(folder: Path) -> RunReport:
    """Read and sum up what lies in a folder."""
    return build_report(run_in(folder))


def facts_of(folder: Path) -> ModelFacts:
    """Return the facts of the only model in a folder."""
    (model,) = report_of(folder).models
    return model.facts


def write_changed(
    folder: Path, job: SyntheticJob, change: Change, *, files: int | None = None
) -> None:
    """Write the files of a job's first ranks, each of whose steps is changed."""
    for rank in range(job.ranks if files is None else files):
        records = [job.run(rank), job.layout(), *job.clock_records(rank)]
        steps = [change(rank, step.completed(rank)) for step in simulate(job)]
        write_ranks(folder, {rank: rank_file(records, steps).decode()})


def as_it_is(rank: int, completed: CompletedStep) -> CompletedStep:
    return completed


def write_kept(
    folder: Path, job: SyntheticJob, retention: Retention, change: Change = as_it_is
) -> None:
    """Write the files of a job as its exporters do, which leave buckets out of most steps."""
    writers = [RecordFileExporter(folder, retention=retention) for _ in range(job.ranks)]
    for rank, writer in enumerate(writers):
        records = job.layout(rank), *job.clock_records(rank)
        writer.export(Batch(run=job.run(rank), records=records))
    for step in simulate(job):
        for rank, writer in enumerate(writers):
            completed = change(rank, step.completed(rank))
            writer.export(Batch(run=job.run(rank), steps=(completed,)))
    for writer in writers:
        writer.close()
