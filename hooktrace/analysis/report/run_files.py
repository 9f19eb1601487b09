"""Record files of a run, found and read for a subcommand, with a progress bar on a terminal.

A logdir --find_records--> files --load--> Timeline; what cannot be read is a ``UsageError``
"""

from __future__ import annotations

import os
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

from ...records.errors import UsageError
from ...records.files import find_records, has_old_traces, size_of
from ...records.units import listed
from ..timeline import Timeline, load
from .fetched import fetched


def progress_bar() -> Progress:
    """Return a bar over bytes; it shows on a terminal only, and goes away at the end."""
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        DownloadColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def read_run(
    run: str | os.PathLike[str], rank: int | None = None, *, processes: int | None = None
) -> Timeline:
    """Read the record files under a logdir, here or at a URL (``fetched.py``), or of one rank.

    ``processes``: how many read at once, at most; as many as there are cores.  Raises
    ``UsageError`` where there is none, or nothing in them can be read.
    """
    folder = fetched(run)
    traces = files_of(folder)
    if rank is not None and rank not in traces:
        raise UsageError(f"no file of rank {rank} is there; pass --rank one of {listed(traces)}")
    if rank is not None:
        traces = {rank: traces[rank]}
    with progress_bar() as bar:
        size = sum(map(size_of, traces.values()))
        task = bar.add_task(f"reading {len(traces)} ranks", total=size)
        timeline = load(
            traces,
            processes=processes,
            progress=lambda done, _: bar.update(task, completed=done),
        )
    if not any(
        len(track.steps) or len(track.buckets) or track.records.hangs for track in timeline.tracks
    ):
        raise UsageError(_nothing_read(timeline, folder))
    return timeline


def files_of(run: Path) -> dict[int, list[Path]]:
    """Return the record files of a run by rank; raises ``UsageError`` where there is none."""
    if not run.exists():
        raise UsageError(f"there is no {run}; pass the logdir that RecordFileExporter was given")
    traces = find_records(run)
    if not traces and has_old_traces(run):
        raise UsageError(
            f"the files in {run} are traces (rank*.trace.json) of hooktrace before 0.1, which this "
            "version does not read; open them in Perfetto as they are, or record the run again"
        )
    if not traces:
        raise UsageError(
            f"there is no record file in {run} or {run / 'plugins' / 'hooktrace'}; pass the logdir "
            "that RecordFileExporter was given, or set HOOKTRACE_RECORD_DIR in the job"
        )
    return traces


def _nothing_read(timeline: Timeline, run: Path) -> str:
    for one in timeline.unread:
        return f"nothing in {run} can be read: {one.file}: {one.why}"
    for track in timeline.tracks:
        if track.records.skipped:
            line, reason = track.records.skipped[0]
            where = f"line {line}: " if line else ""
            return f"nothing in {track.paths[0]} can be read: {where}{reason}"
    return (
        f"the record files in {run} hold no step; train with a traced hook for some steps, and end "
        "with tracer.close()"
    )
