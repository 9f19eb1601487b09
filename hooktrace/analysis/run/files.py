"""Record files of a run, found and read for a subcommand, with a progress bar on a terminal.

A logdir --find_records--> files --load--> Run; what cannot be read is a ``UsageError``
"""

from __future__ import annotations

import os
import re
from math import ceil
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

from ...records.errors import UsageError
from ...records.files import find_records, size_of
from ...records.units import listed
from .engines import LOCAL, check_engine
from .run import Run, load


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
    path: str | os.PathLike[str],
    rank: int | None = None,
    *,
    processes: int | None = None,
    on: str = LOCAL,
    every: int = 1,
) -> Run:
    """Read the record files under a logdir, or of one rank.

    ``processes``: how many read at once, at most; as many as there are cores.  ``on``, ``every``:
    as ``load``.  Raises ``UsageError`` where there is none, nothing in them can be read, or there
    is no memory for them.
    """
    check_engine(on)
    if every < 1:
        raise UsageError(f"--every {every} keeps no step; pass 1 or more")
    folder = Path(path)
    traces = files_of(folder)
    if rank is not None and rank not in traces:
        raise UsageError(f"no file of rank {rank} is there; pass --rank one of {listed(traces)}")
    if rank is not None:
        traces = {rank: traces[rank]}
    with progress_bar() as bar:
        size = sum(map(size_of, traces.values()))
        _check_memory(size, every)
        task = bar.add_task(f"reading {len(traces)} ranks", total=size)
        run = load(
            traces,
            processes=processes,
            on=on,
            every=every,
            progress=lambda done, _: bar.update(task, completed=done),
        )
    if not any(
        len(track.steps) or len(track.buckets) or track.records.hangs for track in run.tracks
    ):
        raise UsageError(_nothing_read(run, folder))
    return run


_WRITTEN = 80
"""Bytes of a bucket in a file."""
_A_BUCKET = 300
"""Bytes that a report takes for a bucket, with its arrays."""


def _check_memory(size: int, every: int) -> None:
    """Raise ``UsageError`` where the buckets of so many bytes of files do not fit, by /proc."""
    try:
        free = int(re.findall(r"MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text())[0]) << 10
    except (OSError, IndexError):
        return
    needed = size / _WRITTEN * _A_BUCKET
    if needed / every > free:
        raise UsageError(
            f"the files, {size / 2**30:.1f} GiB, hold about {size / _WRITTEN / every:,.0f} buckets "
            f"to read, which take {needed / every / 2**30:.1f} GiB of memory, and "
            f"{free / 2**30:.1f} are free; pass --every {ceil(2 * needed / free)}, or more, for "
            "the buckets of a part of the steps"
        )


def files_of(run: Path) -> dict[int, list[Path]]:
    """Return the record files of a run by rank; raises ``UsageError`` where there is none."""
    if not run.exists():
        raise UsageError(f"there is no {run}; pass the logdir that RecordFileExporter was given")
    traces = find_records(run)
    if not traces:
        raise UsageError(
            f"there is no record file in {run} or {run / 'plugins' / 'hooktrace'}; pass the logdir "
            "that RecordFileExporter was given, or set HOOKTRACE_RECORD_DIR in the job"
        )
    return traces


def _nothing_read(run: Run, folder: Path) -> str:
    for one in run.unread:
        return f"nothing in {folder} can be read: {one.file}: {one.why}"
    for track in run.tracks:
        if track.records.skipped:
            line, reason = track.records.skipped[0]
            where = f"line {line}: " if line else ""
            return f"nothing in {track.paths[0]} can be read: {where}{reason}"
    return (
        f"the record files in {folder} hold no step; train with a traced hook for some steps, and "
        "end with tracer.close()"
    )
