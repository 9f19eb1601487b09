"""Record files of a run, found and read: by this machine's cores, or workers that see the files.

    a logdir --find_records--> files by rank --one function, mapped by any engine--> tracks --> Run

What cannot be read is a ``UsageError``.
"""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...records.cores import usable_cores
from ...records.errors import UsageError
from ...records.files import find_records, size_of
from ...records.units import listed
from .columns import RankTrack
from .read import read_track
from .run import Run, run_of

if TYPE_CHECKING:
    from rich.progress import Progress

LOCAL = "local"
_ENGINES = re.compile(r"(dask|ray)://\S*")

_WORTH_IT = 32 << 20
"""Bytes from which on starting processes takes less time than it saves."""

_Files = Sequence[list[Path]]
_Map = Callable[[_Files], Iterator[RankTrack]]


def load(
    traces: dict[int, list[Path]], *, processes: int | None = None, on: str = LOCAL, every: int = 1
) -> Run:
    """Read the files of many ranks, with a progress bar on a terminal.

    ``processes``: how many read at once, by default as many as there are cores.  ``on``: who reads,
    ``local``, ``dask://HOST:PORT`` or ``ray://HOST:PORT``.  ``every``: of the steps whose number it
    divides the buckets are read, of all others their own line alone.  Raises ``UsageError`` where
    the engine cannot be reached, or its workers cannot read.
    """
    files, tracks = [traces[rank] for rank in sorted(traces)], list[RankTrack]()
    sizes = [*map(size_of, files)]
    engine = _engine(on, sum(sizes), processes or len(files), every)
    with progress_bar() as bar, engine as each:
        task = bar.add_task(f"reading {len(files)} ranks", total=sum(sizes))
        for track, size in zip(each(files), sizes, strict=True):
            tracks.append(track)
            bar.advance(task, size)
    return replace(run_of(tracks), every=every)


@contextmanager
def _engine(on: str, size: int, processes: int, every: int) -> Iterator[_Map]:
    """Have each rank's files be read; the tracks come in order, as soon as they are there.

    ``size``: bytes of all files.
    """
    name, _, address = on.partition("://")
    read = partial(_read_whole, every=every)
    processes = min(processes, usable_cores()) if size >= _WORTH_IT else 1
    if name == "dask":
        client_of = _library("distributed", on).Client
        with _told(on), client_of(f"tcp://{address}") as client:
            yield lambda files: map(_released, client.map(read, files, pure=False))
    elif name == "ray":
        ray = _library("ray", on)
        with _told(on):
            # Without a host the cluster that this machine is in.
            ray.init(address=on if address else "auto", log_to_driver=False)
            try:
                task = ray.remote(_read_whole)
                yield lambda files: map(ray.get, [task.remote(one, every=every) for one in files])
            finally:
                ray.shutdown()
    elif processes < 2:
        yield partial(map, read)
    else:
        # Imported here: readers that a page waits for have no use for it.
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context

        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            yield partial(pool.map, read)


def _read_whole(paths: list[Path], *, every: int) -> RankTrack:
    """Look for cycles once a rank, and not each time that some hundred lines were decoded."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return read_track(paths, every=every)
    finally:
        if was_enabled:
            gc.enable()


def _released(future: Any) -> RankTrack:
    found: RankTrack = future.result()
    future.release()
    return found


def _library(name: str, on: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{on} is reached by {name}, which is not installed here; pip install the cluster's "
            f"version of {name}, or pass --on local"
        ) from error


@contextmanager
def _told(on: str) -> Iterator[None]:
    """Raise ``UsageError`` for whatever an engine raises: a user has no use for its stack."""
    try:
        yield
    except Exception as error:
        said = (str(error).strip().splitlines() or [""])[-1] or type(error).__name__
        raise UsageError(
            f"{on} did not read the files: {said}; pass the address of a cluster whose workers "
            "have this hooktrace and see the files by the same path, or --on local"
        ) from error


def progress_bar() -> Progress:
    """Return a bar over bytes; it shows on a terminal only, and goes away at the end."""
    # Imported here: processes that read for others have no use for it.
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

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

    ``processes``, ``on``, ``every``: as ``load``.  Raises ``UsageError`` where there is none,
    nothing in them can be read, or there is no memory for them.
    """
    if on != LOCAL and not _ENGINES.fullmatch(on):
        raise UsageError(
            f"{on} is no engine; pass --on local, dask://HOST:PORT (a scheduler) or ray://HOST:PORT"
        )
    if every < 1:
        raise UsageError(f"--every {every} keeps no step; pass 1 or more")
    folder = Path(path)
    if not folder.exists():
        raise UsageError(f"there is no {folder}; pass the logdir that RecordFileExporter was given")
    traces = find_records(folder)
    if not traces:
        raise UsageError(
            f"there is no record file in {folder} or {folder / 'plugins' / 'hooktrace'}; pass the "
            "logdir that RecordFileExporter was given, or set HOOKTRACE_RECORD_DIR in the job"
        )
    if rank is not None and rank not in traces:
        raise UsageError(f"no file of rank {rank} is there; pass --rank one of {listed(traces)}")
    traces = {one: files for one, files in traces.items() if rank in (None, one)}
    _check_memory(sum(map(size_of, traces.values())), every)
    run = load(traces, processes=processes, on=on, every=every)
    if not any(len(t.steps) or len(t.buckets) or t.records.hangs for t in run.tracks):
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
