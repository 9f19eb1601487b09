"""Where this process answers scrapes: one endpoint for all exporters that ask for the same port.

    port, address --join--> the endpoint that is there, or a new one on the next free port
    Aggregates that they share --metric_families, at each scrape--> prometheus_client's server

Two tracers of a process would otherwise fight for its port, and their counters, of one rank, would
be two targets.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from .aggregates import Aggregates
from .base import needing
from .prometheus_format import metric_families
from .target_file import TargetFile

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric as MetricFamily

_log = logging.getLogger(__name__)

_TRIES = 64
_CLOSE_SECONDS = 5.0


class Wanted(NamedTuple):
    """What an exporter asks for: those of a process that ask for the same share an endpoint.

    Not with ``port`` 0, which asks for one of its own.
    """

    port: int
    addr: str
    bucket_histograms: bool


class Endpoint:
    """A server, and what prometheus_client collects for each scrape; ``port``: the one it got.

    ``aggregates`` has what ``users`` exporters counted.
    """

    def __init__(self, wanted: Wanted) -> None:
        with needing("prometheus-client", "Prometheus"):
            from prometheus_client import CollectorRegistry

        self._wanted = wanted
        self.aggregates = Aggregates()
        self.users = 0
        self._labels: dict[str, str] = {}
        self._is_found = False
        self._files: list[TargetFile] = []
        registry = CollectorRegistry()
        registry.register(self)
        self._server, self.thread = _bind(wanted, registry)
        # A loader's worker, which lives longer, would keep the port and answer nobody.
        os.register_at_fork(after_in_child=self._server.socket.close)
        self.port: int = self._server.server_port

    def announce(self, labels: dict[str, str], url: str, file: TargetFile | None) -> None:
        """Say which rank it is: in a file that Prometheus finds, or else on each series.

        Not on both, also in a scrape while it begins or ends: Prometheus renames labels twice said.
        """
        if file is not None:
            self._files.append(file)
            self._is_found |= file.write(url, labels)
        self._labels = {} if self._is_found else labels

    def leave(self, exporter: object) -> None:
        """Stop showing an exporter's gauges; the last one that leaves frees the port.

        What it counted stays in the totals until then: one that falls looks like a restart.
        """
        with _lock:
            self.aggregates.forget(exporter)
            self.users -= 1
            if self.users:
                return
            _found.pop(self._wanted, None)
        for file in self._files:
            file.remove()
        self._server.shutdown()
        self._server.server_close()
        self.thread.join(_CLOSE_SECONDS)

    def collect(self) -> Iterator[MetricFamily]:
        """Yield all series."""
        return metric_families(
            self.aggregates.snapshot(),
            self._labels,
            bucket_histograms=self._wanted.bucket_histograms,
        )


_found: dict[Wanted, Endpoint] = {}
"""Those of this process by what was asked for; a forked child's servers are its parent's."""

_lock: Any = threading.Lock()
os.register_at_fork(after_in_child=_lock._at_fork_reinit)
os.register_at_fork(after_in_child=_found.clear)


def join(wanted: Wanted) -> Endpoint:
    """Return the endpoint for one more exporter, until that leaves.

    Raises ``OSError`` where no port can be bound.
    """
    with _lock:
        endpoint = _found.get(wanted) or Endpoint(wanted)
        if wanted.port:
            _found[wanted] = endpoint
        endpoint.users += 1
        return endpoint


def _bind(wanted: Wanted, registry: CollectorRegistry) -> tuple[WSGIServer, threading.Thread]:
    """Serve on the port that is wanted, or on the next free one, and say so.

    Raises ``OSError`` that says why none can be bound.
    """
    from prometheus_client import start_http_server

    for port in _ports(wanted.port):
        try:
            bound = start_http_server(port, wanted.addr, registry)
        except (OSError, OverflowError) as error:
            number = getattr(error, "errno", None) or errno.EINVAL
            message = f"the Prometheus exporter could not bind {wanted.addr}:{port}: {_fix(error)}"
            failed = OSError(number, message)
            if number != errno.EADDRINUSE:
                raise failed from error
            continue
        if port != wanted.port:
            _log.warning(
                "port %d of %s, for the metrics of this rank, is in use%s; they are on port %d: "
                "scrape that, or let Prometheus find it by the files in file_sd",
                wanted.port, wanted.addr, _by_whom(wanted), port,
            )  # fmt: skip
        return bound
    raise failed


def _fix(error: OSError | OverflowError) -> str:
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


def _by_whom(wanted: Wanted) -> str:
    if any(endpoint.port == wanted.port for endpoint in _found.values()):
        return " by another tracer of this process, whose exporter has other options"
    return ""
