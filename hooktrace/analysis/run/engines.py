"""Where ranks are read: by this machine's cores, or by workers of Dask or Ray that see the files.

files of each rank, ``--on`` --each_on--> RankTrack of each, in order, as they come

Each engine maps the same function over the ranks; what comes back is put together here.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from ...records.cores import usable_cores
from ...records.errors import UsageError
from .columns import RankTrack
from .read import read_track

LOCAL = "local"
_ENGINES = re.compile(r"(dask|ray)://\S*")

_WORTH_IT = 32 << 20
"""Bytes from which on starting processes takes less time than it saves."""

_Files = Sequence[list[Path]]


def check_engine(on: str) -> None:
    """Raise ``UsageError`` for what is no engine."""
    if on != LOCAL and not _ENGINES.fullmatch(on):
        raise UsageError(
            f"{on} is no engine; pass --on local, dask://HOST:PORT (a scheduler) or ray://HOST:PORT"
        )


def each_on(
    on: str, files: _Files, size: int, *, processes: int | None = None, every: int = 1
) -> Iterator[RankTrack]:
    """Yield what the files of each rank hold, in order, as soon as it is there.

    ``on``: ``local``, ``dask://HOST:PORT`` or ``ray://HOST:PORT``; ``size``: bytes of all files;
    ``processes``: of this machine, at most; ``every``: as ``read_track``.  Raises ``UsageError``
    where the engine cannot be reached, or its workers cannot read.
    """
    name, _, _ = on.partition("://")
    if name == "dask":
        yield from _on_dask(on, files, every)
    elif name == "ray":
        yield from _on_ray(on, files, every)
    else:
        yield from _here(files, size, processes, every)


def _read_whole(paths: list[Path], *, every: int) -> RankTrack:
    """Look for cycles once a rank, and not each time that some hundred lines were decoded."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return read_track(paths, every=every)
    finally:
        if was_enabled:
            gc.enable()


def _here(files: _Files, size: int, processes: int | None, every: int) -> Iterator[RankTrack]:
    processes = min(processes or len(files), len(files), usable_cores())
    if size < _WORTH_IT:
        processes = 1
    if processes < 2:
        yield from (_read_whole(one, every=every) for one in files)
        return
    # Imported here: readers that a page waits for have no use for it.
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        yield from pool.map(partial(_read_whole, every=every), files)


def _on_dask(on: str, files: _Files, every: int) -> Iterator[RankTrack]:
    client_of = _library("distributed", on).Client
    with _told(on):
        client = client_of(f"tcp://{on.removeprefix('dask://')}")
    with client, _told(on):
        for future in client.map(_read_whole, files, every=every, pure=False):
            yield future.result()
            future.release()


def _on_ray(on: str, files: _Files, every: int) -> Iterator[RankTrack]:
    ray = _library("ray", on)
    with _told(on):
        # Without a host the cluster that this machine is in.
        ray.init(address="auto" if on == "ray://" else on, log_to_driver=False)
    try:
        with _told(on):
            task = ray.remote(_read_whole)
            for one in [task.remote(paths, every=every) for paths in files]:
                yield ray.get(one)
    finally:
        ray.shutdown()


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
