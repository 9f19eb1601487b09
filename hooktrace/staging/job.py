"""This process in its job: rank, run id, key-value store, and how a DDP process ends well.

Nothing here but ``shutdown`` is a collective.
"""

from __future__ import annotations

import gc
import logging
import os
import socket
import threading
import uuid
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore

from ..records import RunInfo
from ..records.cores import usable_cores

logger = logging.getLogger("hooktrace")


def describe_run(run_id: str | None, anchor: tuple[int, int]) -> RunInfo:
    """Return who this process is; ``anchor``: of its clock.

    Without a process group it is what ``RANK`` and ``WORLD_SIZE`` say, or rank 0 of 1; its rank on
    this host is the launcher's ``LOCAL_RANK``, or 0.
    """
    try:
        world_size, backend = dist.get_world_size(), str(dist.get_backend())
    except (RuntimeError, ValueError):  # none yet, or destroyed a moment ago
        world_size, backend = _environment_int("WORLD_SIZE", 1), "none"
    return RunInfo(
        run_id=run_id or _agreed_run_id(backend != "none"),
        rank=current_rank(),
        local_rank=_environment_int("LOCAL_RANK", 0),
        world_size=world_size,
        host=socket.gethostname(),
        pid=os.getpid(),
        torch_version=str(torch.__version__),
        backend=backend,
        host_anchor_ns=anchor[0],
        wall_anchor_ns=anchor[1],
        cores=usable_cores(),
        threads=torch.get_num_threads(),
    )


def current_rank() -> int:
    """Return this process's rank, as ``describe_run`` says it."""
    try:
        return dist.get_rank()
    except (RuntimeError, ValueError):  # no process group yet, or destroyed a moment ago
        return _environment_int("RANK", 0)


def restart_count() -> str:
    """Return which start of an elastic job this is: its store may hold what an earlier one left."""
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")


def new_lock() -> AbstractContextManager[object]:
    """Return a reentrant lock that is free in forked children, where who held it is not."""
    lock: Any = threading.RLock()
    os.register_at_fork(after_in_child=lock._at_fork_reinit)
    return lock  # type: ignore[no-any-return]  # it is one


def loopback() -> str:
    """Return the loopback interface's name, for gloo: ``lo`` on Linux, ``lo0`` on macOS."""
    return next((name for _, name in socket.if_nameindex() if name.startswith("lo")), "lo")


def _environment_int(name: str, default: int) -> int:
    try:
        return int(os.environ.get(name, default))
    except ValueError:
        return default


def shutdown() -> None:
    """End a DDP process so that it does not abort at exit; every rank must call it.

    A gloo process that has not synchronised, let go of its DDP objects and destroyed its process
    group in that order aborts now and then ("terminate called without an active exception").
    Delete your own references first (``del ddp``): this waits for all ranks, collects garbage, and
    destroys the default process group.  Without one it does nothing.
    """
    if not dist.is_initialized():
        return
    dist.barrier()
    gc.collect()
    dist.destroy_process_group()


def _agreed_run_id(initialised: bool) -> str:
    own = uuid.uuid4().hex
    if not initialised:
        return own
    try:
        return first_word(job_store(), "hooktrace/run_id", own)
    except Exception as error:  # a private function of torch and a network request
        logger.warning(
            "the ranks could not agree on a run id (%s: %s), so this rank's records carry one of "
            "its own; pass Tracer(run_id=...) or set HOOKTRACE_RUN_ID to the same value everywhere",
            type(error).__name__,
            error,
        )
        return own


def first_word(store: Any, key: str, word: str) -> str:
    """Return the word that a key was given first, by any rank: this one's, if it is the first.

    One request to the store, which waits for nobody.
    """
    return bytes(store.compare_set(key, "", word)).decode()


def job_store(prefix: str = "") -> Any:
    """Return the store of the default process group; with ``prefix`` all keys begin with it.

    torch has no public name for it.  Raises what torch raises where there is no process group.
    """
    store: Any = dist.distributed_c10d._get_default_store()
    return PrefixStore(prefix, store) if prefix else store


def rendezvous_store(prefix: str) -> Any:
    """Return a connection of its own to the job's store, in which all keys begin with ``prefix``.

    A store's client serves one request at a time, one that waits too: two threads that rendezvous
    through the same one, in another order on another rank, wait for ever.
    """
    return PrefixStore(prefix, job_store().clone())


def address_of_this_host(store: Any) -> str:
    """Return this host's address for the others: the one by which it reaches the job's store."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    host = getattr(store, "host", None)
    # A store that is no server, a file, is of one host.
    return route_to(host, store.port) if host else "127.0.0.1"


def route_to(host: str, port: int = 9) -> str:
    """Return the address of this host by which it reaches another one; sends nothing."""
    family, _, _, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(target)  # the kernel chooses a route
        return str(probe.getsockname()[0])
