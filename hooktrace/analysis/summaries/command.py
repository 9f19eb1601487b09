"""``hooktrace report RUN --on ...``: find the files, have them summed up, print what they say."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.text import Text

from ...records import RunInfo
from ...records.errors import UsageError
from ...records.files import size_of
from ...records.reader import RecordReader, read_blocks
from ..report.fetched import is_url
from ..report.run_files import check_measured, files_of, progress_bar
from ..report.run_report import report_json
from ..report.terminal import print_report
from ..timeline import newest_run
from .engines import Files, merged_on, pool_of
from .rank_summary import summarize
from .report import report_of
from .summary import Job, M, Summary

_MOST_ROWS = 1 << 17
"""Of a table by step and bucket, each some 100 bytes: a worker has about four of them at once."""
_ROW_BYTES = 250
"""Of a bucket in a file, at least."""


def run_summary(
    run: str | os.PathLike[str], *, on: str, model: str | None = None, as_json: bool = False
) -> None:
    """Print the report of a run that ``on`` reads, rank by rank; raises ``UsageError``."""
    check_on(on, [run])
    console = Console(highlight=False, markup=False)
    summary, job = summary_of(Path(run), on=on)
    if model is not None and model not in summary.names:
        raise UsageError(
            f"no model is called {model!r}; pass --model one of {', '.join(summary.names)}"
        )
    report = report_of(summary, job, model=model, path=str(run))
    if as_json:
        console.file.write(report_json(report))
        return
    print_report(console, report)
    most = max(summary.memory.values(), default=0)
    console.print()
    said = f"read by {len(summary.memory)} processes"
    console.print(Text(f"{said}, of {most / 2**20:.0f} MiB each at most" if most else said))


def summary_of(run: Path, *, on: str) -> tuple[Summary, Job]:
    """Return the merged summary of a run, and what its ranks had to know; raises ``UsageError``."""
    return read_on(run, on, summarize)


def check_on(on: str, runs: Sequence[str | os.PathLike[str]]) -> None:
    """Raise ``UsageError`` where ``on`` is nothing to run on, or cannot read one of the runs."""
    pool_of(on)
    for run in runs:
        if is_url(run):
            raise UsageError(
                f"--on reads files by their path, and {run} is a URL; mount it, or leave out --on"
            )


def read_on(run: Path, on: str, summarize: Callable[[Sequence[Files], Job], M]) -> tuple[M, Job]:
    """Return what ``summarize`` leaves of all ranks, and what they had to know.

    Raises ``UsageError`` where nothing is there, or can be read.
    """
    traces = files_of(run)
    files = [traces[rank] for rank in sorted(traces)]
    job = _job(traces)
    check_measured(job.run, run)
    with progress_bar() as bar:
        size = sum(map(size_of, files))
        task = bar.add_task(f"reading {len(files)} ranks", total=size)

        def progress(ranks: int) -> None:
            bar.update(task, completed=size * ranks // len(files))

        summary = merged_on(on, files, job, summarize, progress)
    if not summary.names:
        raise UsageError(
            f"no step can be read of the record files in {run}; make them readable, on all workers "
            "under the same path, or train with a traced hook for some steps"
        )
    return summary, job


def _job(traces: dict[int, list[Path]]) -> Job:
    runs = {rank: _run_of(traces[rank]) for rank in sorted(traces)}
    newest = newest_run(runs.values())
    lowest = next((r for r, run in runs.items() if run and run.run_id == newest), min(runs))
    run = runs[lowest]
    rows = size_of(traces[lowest]) // _ROW_BYTES
    reference = run if run is not None and run.rank == 0 else None
    return Job(run, reference, max(1, -(-rows // _MOST_ROWS)))


def _run_of(paths: Sequence[Path]) -> RunInfo | None:
    """Return what the beginning of a rank's files says of the run."""
    for path in paths:
        reader = RecordReader()
        with suppress(OSError):
            for block in read_blocks(path):
                reader.feed(block)
                break
        if (run := reader.content().run) is not None:
            return run
    return None
