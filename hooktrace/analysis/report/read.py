"""Finds and reads record files for the command line: a progress bar, and errors in words."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

from ...records.files import find_records, has_old_traces
from ...records.units import listed
from ..timeline import Timeline, load


class ReportError(Exception):
    """Nothing can be reported; the message ends in what to do."""


def progress_bar(console: Console) -> Progress:
    """Return a bar over bytes; it shows on a terminal only, and goes away at the end."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        DownloadColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def read_run(run: Path, console: Console, rank: int | None = None) -> Timeline:
    """Read the record files under a logdir, or those of one rank; the bar goes to ``console``.

    Raises ``ReportError`` where there is none, or nothing in them can be read.
    """
    if not run.exists():
        raise ReportError(f"there is no {run}; pass the logdir that RecordFileExporter was given")
    traces = find_records(run)
    if not traces and has_old_traces(run):
        raise ReportError(
            f"the files in {run} are traces (rank*.trace.json) of hooktrace before 0.1, which this "
            "version does not read; open them in Perfetto as they are, or record the run again"
        )
    if not traces:
        raise ReportError(
            f"there is no record file in {run} or {run / 'plugins' / 'hooktrace'}; pass the logdir "
            "that RecordFileExporter was given, or set HOOKTRACE_RECORD_DIR in the job"
        )
    if rank is not None and rank not in traces:
        raise ReportError(f"no file of rank {rank} is there; pass --rank one of {listed(traces)}")
    if rank is not None:
        traces = {rank: traces[rank]}
    try:
        with progress_bar(console) as bar:
            size = sum(path.stat().st_size for paths in traces.values() for path in paths)
            task = bar.add_task(f"reading {len(traces)} ranks", total=size)
            timeline = load(traces, progress=lambda done, _: bar.update(task, completed=done))
    except OSError as error:
        raise ReportError(
            f"cannot read {error.filename}: {error.strerror}; make the record files readable"
        ) from error
    if not any(len(track.steps) or len(track.buckets) for track in timeline.tracks):
        raise ReportError(_nothing_read(timeline, run))
    return timeline


def _nothing_read(timeline: Timeline, run: Path) -> str:
    for track in timeline.tracks:
        if track.records.skipped:
            line, reason = track.records.skipped[0]
            return f"nothing in {track.paths[0]} can be read: line {line}: {reason}"
    return (
        f"the record files in {run} hold no step; train with a traced hook for some steps, and end "
        "with tracer.close()"
    )


def check_writable(path: Path) -> None:
    """Raise ``ReportError`` where a file cannot be made at ``path``, before any work is done."""
    try:
        existed = path.exists()
        with path.open("ab"):
            pass
        if not existed:
            path.unlink()
    except OSError as error:
        raise ReportError(
            f"cannot write {path}: {error.strerror}; pass a file in a directory that you may write"
        ) from error
