"""Where a process answers scrapes: on the port that is wanted, or on the next free one.

port, address --bind--> prometheus_client's server, in a thread of its own
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import threading
    from wsgiref.simple_server import WSGIServer

    from prometheus_client import CollectorRegistry

_log = logging.getLogger(__name__)

_TRIES = 64


def bind(
    wanted: int, addr: str, registry: CollectorRegistry
) -> tuple[WSGIServer, threading.Thread]:
    """Serve a registry on a port, or on the next free one, and say so.

    Raises ``OSError`` where no port can be bound.
    """
    for port in _ports(wanted):
        try:
            bound = _serve(port, addr, registry)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            taken = error
            continue
        if port != wanted:
            _log.warning(
                "port %d of %s, for the metrics of this rank, is in use; they are on port %d: "
                "scrape that, or let Prometheus find it by the files in file_sd",
                wanted, addr, port,
            )  # fmt: skip
        return bound
    raise taken


def _serve(
    port: int, addr: str, registry: CollectorRegistry
) -> tuple[WSGIServer, threading.Thread]:
    """Bind and start the server; raises ``OSError`` that says why that is not possible."""
    from prometheus_client import start_http_server

    try:
        return start_http_server(port, addr, registry)
    except (OSError, OverflowError) as error:
        number = getattr(error, "errno", None) or errno.EINVAL
        message = f"the Prometheus exporter could not bind {addr}:{port}: {_remedy(error)}"
        raise OSError(number, message) from error


def _remedy(error: OSError | OverflowError) -> str:
    if isinstance(error, OverflowError):
        return "port plus local rank must be at most 65535; pass a lower port, or port=0"
    if error.errno == errno.EADDRINUSE:
        return "the port is in use; pass port=0 for a free one"
    if isinstance(error, PermissionError):
        return "no permission for this port; pass port=0 or one from 1024 on"
    return f"{error.strerror or error}; pass an address of this host, such as addr='127.0.0.1'"


def _ports(first: int) -> Iterator[int]:
    """Yield the port and those after it; as far apart as this host's other ranks need them."""
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "")
    stride = int(ranks) if ranks.isdecimal() and int(ranks) else 1
    yield first
    if first:
        yield from range(first + stride, min(first + stride * _TRIES, 65536), stride)
