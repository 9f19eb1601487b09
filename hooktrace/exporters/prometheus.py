"""Metrics that Prometheus scrapes: one HTTP server a process, on ``port + local_rank``.

The drain adds batches to ``Aggregates``; a scrape copies them under a lock and formats the copy in
the server's own thread.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import ssl
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from ..records import Batch, RunInfo
from ..records.metrics import METRICS, Metric
from .aggregates import Aggregates, Family
from .observations import observe

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric as MetricFamily

__all__ = ["PrometheusExporter"]

_log = logging.getLogger(__name__)

_ANY_ADDRESS = ("", "0.0.0.0", "::")
_CLOSE_SECONDS = 5.0


class PrometheusExporter:
    """Serves the metrics table to Prometheus over HTTP, or HTTPS with ``certfile`` and ``keyfile``.

    It binds in the constructor: to ``port + local_rank``, or to a free port with ``port=0``; the
    result is in ``port`` and ``url``.  ``local_rank`` is taken from ``LOCAL_RANK`` (0 without it).
    ``addr`` is loopback unless told otherwise: who can reach the port can read the metrics.

    ``file_sd`` is a directory, or a path that ends in ``.json``: on the first export each rank
    writes ``hooktrace-rank<N>.json`` there (``<stem>-rank<N>.json`` for a path) for Prometheus'
    ``file_sd_configs``, with the labels rank, local_rank, world_size, run_id and host; ``close``
    removes it.  The directory is made if it is missing.

    ``client_cafile`` / ``client_capath`` and ``client_auth_required`` ask scrapers for a
    certificate.  ``registry`` is a ``CollectorRegistry`` to share; by default it is one of its own.

    Raises ``OSError`` when the port cannot be bound, when ``file_sd`` is not a writable directory
    or when a TLS file cannot be read, and ``ValueError`` for options that contradict each other.
    """

    name = "prometheus"

    def __init__(
        self,
        port: int = 9464,
        addr: str = "127.0.0.1",
        *,
        local_rank: int | None = None,
        file_sd: str | Path | None = None,
        certfile: str | Path | None = None,
        keyfile: str | Path | None = None,
        client_cafile: str | Path | None = None,
        client_capath: str | Path | None = None,
        client_auth_required: bool = False,
        registry: CollectorRegistry | None = None,
    ) -> None:
        from prometheus_client import CollectorRegistry

        tls = _Tls(
            _text(certfile),
            _text(keyfile),
            _text(client_cafile),
            _text(client_capath),
            client_auth_required,
        )
        tls.check()
        self._aggregates = Aggregates()
        self._addr = addr
        self._scheme = "https" if certfile else "http"
        self._file_sd = None if file_sd is None else _usable_file_sd(Path(file_sd))
        self._target_file: Path | None = None
        self._target_text = ""
        self._registry = CollectorRegistry() if registry is None else registry
        self._collector = _Collector(self._aggregates)
        self._registry.register(self._collector)
        try:
            wanted = port + _local_rank(local_rank) if port else 0
            self._server, self._thread = _serve(wanted, addr, self._registry, tls)
        except BaseException:
            self._registry.unregister(self._collector)
            raise
        self.port: int = self._server.server_port
        self.url = f"{self._scheme}://{_target(_reachable(addr, 'localhost'), self.port)}/metrics"
        self._closed = False

    def export(self, batch: Batch) -> None:
        """Add a batch to the totals that the next scrape reads."""
        self._aggregates.add(observe(batch))
        if self._file_sd is not None:
            self._announce(self._file_sd, batch.run)

    def close(self) -> None:
        """Stop the server, free the port and remove the ``file_sd`` file.  May be called again."""
        if self._closed:
            return
        self._closed = True
        self._withdraw()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(_CLOSE_SECONDS)
        self._registry.unregister(self._collector)

    def _announce(self, place: Path, run: RunInfo) -> None:
        self._file_sd = None
        target = _target(_reachable(self._addr, run.host), self.port)
        text = json.dumps([{"targets": [target], "labels": self._target_labels(run)}], indent=1)
        path = _file_sd_path(place, run.rank)
        try:
            _write_atomically(path, text + "\n")
        except OSError as error:
            _log.warning(
                "Prometheus will not discover rank %d: %s could not be written (%s); "
                "make room or permit writing there, or add the target %s by hand",
                run.rank, path, error, target,
            )  # fmt: skip
            return
        self._target_file, self._target_text = path, text + "\n"

    def _target_labels(self, run: RunInfo) -> dict[str, str]:
        labels = {
            "rank": str(run.rank),
            "local_rank": str(run.local_rank),
            "world_size": str(run.world_size),
            "run_id": run.run_id,
            "host": run.host,
        }
        if self._scheme == "https":
            labels["__scheme__"] = "https"
        return labels

    def _withdraw(self) -> None:
        path, self._target_file = self._target_file, None
        if path is None:
            return
        try:
            # A later run may have announced itself under the same name.
            if path.read_text() == self._target_text:
                path.unlink()
        except FileNotFoundError:
            return
        except OSError as error:
            _log.warning("%s could not be removed (%s); delete it by hand", path, error)


@dataclass(frozen=True, slots=True)
class _Tls:
    certfile: str | None
    keyfile: str | None
    client_cafile: str | None
    client_capath: str | None
    client_auth_required: bool

    def check(self) -> None:
        """Load the files once, so that an error names them and no port is bound yet."""
        if (self.certfile is None) != (self.keyfile is None):
            raise ValueError(
                "the Prometheus exporter got only one of certfile and keyfile; pass both"
            )
        has_ca = self.client_cafile is not None or self.client_capath is not None
        if self.certfile is None:
            if has_ca or self.client_auth_required:
                raise ValueError(
                    "the Prometheus exporter checks clients only over TLS; "
                    "pass certfile and keyfile"
                )
            return
        if self.client_auth_required and not has_ca:
            raise ValueError(
                "client_auth_required needs to know whom to trust; "
                "pass client_cafile or client_capath"
            )
        self._load(self.certfile, has_ca)

    def _load(self, certfile: str, has_ca: bool) -> None:
        try:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(certfile, self.keyfile)
            if has_ca:
                context.load_verify_locations(self.client_cafile, self.client_capath)
        except OSError as error:
            files = (certfile, self.keyfile, self.client_cafile, self.client_capath)
            named = ", ".join(file for file in files if file is not None)
            message = (
                f"the Prometheus exporter could not load its TLS files ({named}): "
                f"{error.strerror or error}; pass readable PEM files that belong together"
            )
            raise OSError(error.errno or errno.EINVAL, message) from error


class _Collector:
    """What prometheus_client calls for each scrape."""

    def __init__(self, aggregates: Aggregates) -> None:
        self._aggregates = aggregates

    def describe(self) -> Iterator[MetricFamily]:
        for metric in METRICS:
            yield _to_family(Family(metric))

    def collect(self) -> Iterator[MetricFamily]:
        for family in self._aggregates.snapshot():
            yield _to_family(family)


def _to_family(family: Family) -> MetricFamily:
    """Turn one metric's snapshot into prometheus_client's form of it."""
    from prometheus_client import core

    metric = family.metric
    if metric.kind == "info":
        info = core.InfoMetricFamily(metric.name, metric.help)
        for labels in family.values:
            info.add_metric([], dict(zip(metric.labels, labels, strict=True)))
        return info
    if metric.kind == "histogram":
        histogram = core.HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        for labels, state in family.distributions.items():
            buckets = list(_cumulative(metric, state.counts))
            histogram.add_metric(labels, buckets, state.total)
        return histogram
    single: core.CounterMetricFamily | core.GaugeMetricFamily
    if metric.kind == "counter":
        single = core.CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
    else:
        single = core.GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, value in family.values.items():
        single.add_metric(labels, value)
    return single


def _cumulative(metric: Metric, counts: Iterable[int]) -> Iterator[tuple[str, float]]:
    bounds = [*(repr(bound) for bound in metric.buckets), "+Inf"]
    return zip(bounds, map(float, accumulate(counts)), strict=True)


def _serve(
    port: int,
    addr: str,
    registry: CollectorRegistry,
    tls: _Tls,
) -> tuple[WSGIServer, threading.Thread]:
    """Bind and start the server, or say in one sentence why that is not possible."""
    from prometheus_client import start_http_server

    try:
        server, thread = start_http_server(
            port,
            addr,
            registry,
            tls.certfile,
            tls.keyfile,
            tls.client_cafile,
            tls.client_capath,
            client_auth_required=tls.client_auth_required,
        )
    except (OSError, OverflowError) as error:
        number = getattr(error, "errno", None) or errno.EINVAL
        message = f"the Prometheus exporter could not bind {addr}:{port}: {_remedy(error)}"
        raise OSError(number, message) from error
    if isinstance(server.socket, ssl.SSLSocket):
        # A handshake in accept() would let one silent client stop every scrape, and close().
        setattr(server.socket, "do_handshake_on_connect", False)  # noqa: B010
    return server, thread


def _remedy(error: OSError | OverflowError) -> str:
    if isinstance(error, OverflowError):
        return "port plus local rank must be at most 65535; pass a lower port, or port=0"
    if error.errno == errno.EADDRINUSE:
        return "the port is in use; pass port=0 for a free one"
    if isinstance(error, PermissionError):
        return "no permission for this port; pass port=0 or one from 1024 on"
    return f"{error.strerror or error}; pass an address of this host, such as addr='127.0.0.1'"


def _text(path: str | Path | None) -> str | None:
    return None if path is None else os.fspath(path)


def _local_rank(given: int | None) -> int:
    if given is not None:
        return given
    value = os.environ.get("LOCAL_RANK", "0")
    try:
        return int(value)
    except ValueError:
        message = f"LOCAL_RANK is {value!r}, not a number; unset it or pass local_rank=0"
        raise ValueError(message) from None


def _reachable(addr: str, host: str) -> str:
    """Return what a client can connect to when the server listens on ``addr``."""
    return host if addr in _ANY_ADDRESS else addr


def _target(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _file_sd_path(place: Path, rank: int) -> Path:
    if place.suffix == ".json":
        return place.with_name(f"{place.stem}-rank{rank}.json")
    return place / f"hooktrace-rank{rank}.json"


def _usable_file_sd(place: Path) -> Path:
    folder = place.parent if place.suffix == ".json" else place
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"file_sd={place} cannot be used ({error.strerror}); pass a writable directory"
        raise OSError(error.errno or errno.EINVAL, message) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(
            errno.EACCES, f"file_sd={place} is not writable; pass a writable directory"
        )
    return place


def _write_atomically(path: Path, text: str) -> None:
    # The temporary name must not match Prometheus' *.json, and the mode must let it read the file.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
