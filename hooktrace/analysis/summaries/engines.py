"""Where summaries are made: processes here, or a cluster that is there, by its own client.

    chunks of ranks --local | dask://... | ray://...--> what a pass leaves of each --merged--> one

``Pool``: calls a function with each of many arguments, somewhere, and yields results as they come.
Nothing is scheduled here.  Dask's and Ray's workers need hooktrace, with its extra ``cluster``, and
the files under the same path as here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from ...records.cores import usable_cores
from ...records.errors import UsageError
from .rank_summary import summarize
from .summary import Job, M, Summary

Files = Sequence[str | os.PathLike[str]]
Pool = Callable[[Callable[[Any], Any], Sequence[Any]], Iterator[Any]]

_MOST_RANKS = 16
"""Of one chunk: few enough that all workers end at nearly the same time, ..."""
_CHUNKS = 64
"""... and where ranks are few, so many chunks at least, or one a rank."""


def summaries_on(
    on: str, files: Sequence[Files], job: Job, progress: Callable[[int], None] | None = None
) -> Summary:
    """Return the summary of all ranks: ``merged_on`` of ``summarize``."""
    return merged_on(on, files, job, summarize, progress)


def merged_on(
    on: str,
    files: Sequence[Files],
    job: Job,
    summarize: Callable[[Sequence[Files], Job], M],
    progress: Callable[[int], None] | None = None,
) -> M:
    """Return what ``summarize`` leaves of all ranks, whose ``files`` are read by ``on``.

    ``on``: ``local``, a process a core; ``local:N``, N of them; ``dask://host:port`` or
    ``ray://host:port``.  ``summarize``: a function of a module; of no rank it returns what changes
    nothing.  ``progress`` is told how many ranks there are so far.  Raises ``UsageError``.
    """
    pool = pool_of(on)
    size = min(_MOST_RANKS, max(1, len(files) // _CHUNKS))
    chunks = [(summarize, list(files[i : i + size]), job) for i in range(0, len(files), size)]
    found = summarize([], job)
    for one in pool(_called, chunks):
        found = found.merged(one)
        if progress is not None:
            progress(len(found.ranks) + len(found.other_runs))
    return found


def _called(chunk: tuple[Callable[[list[Files], Job], M], list[Files], Job]) -> M:
    """Return one chunk's part: a function by its name, which is all that clusters can take."""
    return chunk[0](*chunk[1:])


def pool_of(on: str) -> Pool:
    """Return what runs functions on an engine; raises ``UsageError`` for one that is not known."""
    kind, _, rest = on.partition(":")
    if kind == "local" and (not rest or (rest.isdecimal() and int(rest) > 0)):
        return _local(int(rest) if rest else usable_cores())
    if kind in _CLUSTERS and rest.startswith("//") and len(rest) > 2:
        return _CLUSTERS[kind](rest.removeprefix("//"))
    raise UsageError(
        f"nothing is called {on!r} to run on; pass --on local, local:4, dask://host:port or "
        "ray://host:port"
    )


def _local(processes: int) -> Pool:
    def run(function: Callable[[Any], Any], every: Sequence[Any]) -> Iterator[Any]:
        from concurrent.futures import ProcessPoolExecutor, as_completed
        from multiprocessing import get_context

        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            waiting = {pool.submit(function, one) for one in every}
            for done in as_completed(waiting):
                waiting.discard(done)  # or it would hold its result
                yield done.result()

    return run


def _dask(address: str) -> Pool:
    distributed = _library("distributed", "dask[distributed]")

    def run(function: Callable[[Any], Any], every: Sequence[Any]) -> Iterator[Any]:
        with _connected(
            lambda: distributed.Client(address, timeout=_PATIENCE_S), address
        ) as client:
            futures = client.map(function, every, pure=False)
            for done, result in distributed.as_completed(futures, with_results=True):
                yield result
                done.release()

    return run


def _ray(address: str) -> Pool:
    ray = _library("ray", "ray[client]")

    def run(function: Callable[[Any], Any], every: Sequence[Any]) -> Iterator[Any]:
        with _connected(partial(_client_of_ray, ray, f"ray://{address}"), address):
            remote = ray.remote(function)
            waiting = [remote.remote(one) for one in every]
            while waiting:
                done, waiting = ray.wait(waiting)
                yield from ray.get(done)

    return run


def _client_of_ray(ray: Any, url: str) -> Any:
    """Connect; once more where the head is there, but the process it starts for a client is not.

    That comes late, or dies, on a head that has just begun or is busy.
    """
    try:
        return ray.init(url)
    except ConnectionError as error:
        if "Initialization failure from server" not in str(error):
            raise
        return ray.init(url)


_CLUSTERS: dict[str, Callable[[str], Pool]] = {"dask": _dask, "ray": _ray}
_PATIENCE_S = 20


def _library(name: str, package: str) -> Any:
    from importlib import import_module

    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{name} is not installed here; pip install '{package}', in the version of the cluster"
        ) from error


def _connected(connect: Callable[[], Any], address: str) -> Any:
    try:
        return connect()
    except (OSError, ConnectionError) as error:  # of dask a TimeoutError, which is an OSError
        raise UsageError(
            f"no cluster answers at {address}: {error}; pass the address that its scheduler "
            "or head prints"
        ) from error
