"""Metrics that Prometheus scrapes: one HTTP server a process, on ``port + local_rank``.

    Batch --observe--> Aggregates --_Collector, at each scrape--> prometheus_client's server

The drain adds up; a scrape copies the totals under a lock and formats the copy in the server's own
thread.  prometheus_server.py binds, and tells Prometheus where.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from ..records import Batch
from ..records.metrics import METRICS
from .aggregates import Aggregates, Distribution, Family, observe
from .model_labels import ModelLabels
from .prometheus_server import TargetFile, Tls, serve

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric as MetricFamily

_ANY_ADDRESS = ("", "0.0.0.0", "::")
_CLOSE_SECONDS = 5.0


class PrometheusExporter:
    """Serves the metrics table to Prometheus over HTTP, or HTTPS with ``certfile`` and ``keyfile``.

    It binds in the constructor: to ``port + local_rank``, or to a free port with ``port=0``; the
    result is in ``port`` and ``url``.  ``local_rank`` is taken from ``LOCAL_RANK`` (0 without it).
    ``addr`` is loopback unless told otherwise: who can reach the port can read the metrics.

    ``file_sd`` is a directory, or a path that ends in ``.json``: on the first export each rank
    writes ``hooktrace-rank<N>.json`` there (``<stem>-rank<N>.json`` for a path) for Prometheus'
    ``file_sd_configs``, with the labels rank, local_rank and host; ``close`` removes it.
    The directory is made if it is missing.

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

        paths = (certfile, keyfile, client_cafile, client_capath)
        tls = Tls(*(None if path is None else os.fspath(path) for path in paths))
        tls.check(client_auth_required)
        self._addr = addr
        self._scheme = "https" if certfile else "http"
        self._target = None if file_sd is None else TargetFile(Path(file_sd))
        self._announced = False
        self._aggregates = Aggregates()
        self._models = ModelLabels(self.name)
        self._registry = CollectorRegistry() if registry is None else registry
        self._collector = _Collector(self._aggregates)
        self._registry.register(self._collector)
        try:
            wanted = port + _local_rank(local_rank) if port else 0
            self._server, self._thread = serve(
                wanted, addr, self._registry, tls, client_auth_required
            )
        except BaseException:
            self._registry.unregister(self._collector)
            raise
        self.port: int = self._server.server_port
        self.url = self._url("localhost")
        self._closed = False

    def export(self, batch: Batch) -> None:
        """Add a batch to the totals that the next scrape reads."""
        self._aggregates.add(self._models.fold(observe(batch)))
        if self._target is not None and not self._announced:
            self._announced = True
            self._target.write(self._url(batch.run.host), batch.run)

    def close(self) -> None:
        """Stop the server, free the port and remove the ``file_sd`` file.  May be called again."""
        if self._closed:
            return
        self._closed = True
        if self._target is not None:
            self._target.remove()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(_CLOSE_SECONDS)
        self._registry.unregister(self._collector)

    def _url(self, host: str) -> str:
        """Return what a client can connect to; ``host`` where the server listens on all."""
        reachable = host if self._addr in _ANY_ADDRESS else self._addr
        if ":" in reachable:
            reachable = f"[{reachable}]"
        return f"{self._scheme}://{reachable}:{self.port}/metrics"


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
    about = (metric.name, metric.help)
    if metric.kind == "info":
        info = core.InfoMetricFamily(*about)
        for labels in family.values:
            info.add_metric([], dict(zip(metric.labels, labels, strict=True)))
        return info
    if metric.kind == "histogram":
        histogram = core.HistogramMetricFamily(*about, labels=metric.labels)
        for labels, state in family.distributions.items():
            histogram.add_metric(labels, _cumulative(metric.buckets, state), state.total)
        return histogram
    make = core.CounterMetricFamily if metric.kind == "counter" else core.GaugeMetricFamily
    single: core.CounterMetricFamily | core.GaugeMetricFamily = make(*about, labels=metric.labels)
    for labels, value in family.values.items():
        single.add_metric(labels, value)
    return single


def _cumulative(bounds: tuple[float, ...], state: Distribution) -> list[tuple[str, float]]:
    """Return (upper bound, observations up to it), as Prometheus counts them."""
    names = [*(repr(bound) for bound in bounds), "+Inf"]
    return list(zip(names, map(float, accumulate(state.counts)), strict=True))


def _local_rank(given: int | None) -> int:
    if given is not None:
        return given
    value = os.environ.get("LOCAL_RANK", "0")
    try:
        return int(value)
    except ValueError:
        message = f"LOCAL_RANK is {value!r}, not a number; unset it or pass local_rank=0"
        raise ValueError(message) from None
