"""The job's key-value store: how ranks tell each other things without a collective.

init_process_group --> torch's default store --job_store()--> run id, agreements, addresses
--prefixed----> the rendezvous of a PrivateGroup
"""

from __future__ import annotations

import socket
from typing import Any, Protocol

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore


class KeyValueStore(Protocol):
    """What is needed of ``torch.distributed.Store``."""

    def set(self, key: str, value: str) -> None:
        """Set a key."""

    def get(self, key: str) -> bytes:
        """Return the value of a key that is there."""

    def check(self, keys: list[str]) -> bool:
        """Return whether all keys are there, at once."""


def job_store(prefix: str = "") -> Any:
    """Return the store of the default process group; with ``prefix`` all keys begin with it.

    torch has no public name for it.  Raises what torch raises where there is no process group.
    """
    store: Any = dist.distributed_c10d._get_default_store()
    return PrefixStore(prefix, store) if prefix else store


def address_of_this_host(store: Any) -> str:
    """Return the address of this host that the others reach: by which it reaches the job's store.

    A store that is no server, a file, is of one host.
    """
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    host = getattr(store, "host", None)
    if not host:
        return "127.0.0.1"
    family, _, _, _, target = socket.getaddrinfo(host, store.port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(target)  # sends nothing: the kernel chooses a route
        return str(probe.getsockname()[0])
