"""Metrics that Prometheus scrapes: one HTTP server an exporter, on ``port + local_rank``.

    Batch --Observer--> Aggregates --PrometheusExporter.collect, at each scrape--> the server

The drain adds up; a scrape copies the totals under a lock and formats the copy in the server's own
thread.  prometheus_endpoint.py has the port; prometheus_format.py the metric families;
target_file.py tells Prometheus where they are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ..records import Batch
from ..records.metrics import TARGET_LABELS
from .aggregates import Aggregates
from .base import needing
from .observations import Observer
from .prometheus_endpoint import bind
from .prometheus_format import metric_families
from .target_file import TargetFile

if TYPE_CHECKING:
    from prometheus_client.core import Metric as MetricFamily

_ANY_ADDRESS = ("", "0.0.0.0", "::")
_CLOSE_SECONDS = 5.0


class PrometheusExporter:
    """Serves the metrics table to Prometheus over HTTP.

    It binds in the constructor: to ``port + local_rank``, or to a free port with ``port=0``; the
    result is in ``port`` and ``url``.  ``local_rank`` is taken from ``LOCAL_RANK`` (0 without it).
    A port in use is one warning, and the next free one is taken, ``LOCAL_WORLD_SIZE`` ports on.
    ``addr`` is loopback unless told otherwise: who can reach the port can read the metrics.

    ``file_sd`` is a directory, or a path that ends in ``.json``: on the first export each rank
    writes ``hooktrace-rank<N>.json`` there (``<stem>-rank<N>.json`` for a path) for Prometheus'
    ``file_sd_configs``, with the port and the labels rank, local_rank and host; ``close`` removes
    it.  The directory is made if it is missing.  Without such a file each series has these labels.

    ``bucket_histograms=False`` serves durations of buckets by sum and count alone: 2 series for
    each bucket and not 20.

    Raises ``OSError`` when the port cannot be bound or ``file_sd`` is not a writable directory, and
    ``ImportError`` where ``prometheus-client`` is not installed.
    """

    name = "prometheus"

    def __init__(
        self,
        port: int = 9464,
        addr: str = "127.0.0.1",
        *,
        local_rank: int | None = None,
        file_sd: str | Path | None = None,
        bucket_histograms: bool = True,
    ) -> None:
        with needing("prometheus-client", "Prometheus"):
            from prometheus_client import CollectorRegistry
        self._addr = addr
        self._bucket_histograms = bucket_histograms
        self._target = None if file_sd is None else TargetFile(Path(file_sd))
        self._labels: dict[str, str] = {}
        self._observer = Observer(self.name)
        self._aggregates = Aggregates()
        registry = CollectorRegistry()
        registry.register(self)
        wanted = port + _local_rank(local_rank) if port else 0
        self._server, self._thread = bind(wanted, addr, registry)
        self.port: int = self._server.server_port
        self.url = self._url("localhost")
        self._closed = False

    def export(self, batch: Batch) -> None:
        """Add a batch to the totals that the next scrape reads."""
        if not self._labels:
            self._labels = {name: str(getattr(batch.run, name)) for name in TARGET_LABELS}
            if self._target is not None:
                self._target.write(self._url(batch.run.host), self._labels)
        self._aggregates.add(self._observer.observe(batch))

    def collect(self) -> Iterator[MetricFamily]:
        """Yield all series, for prometheus_client's server."""
        is_found = self._target is not None and self._target.is_written
        return metric_families(
            self._aggregates.snapshot(),
            {} if is_found else self._labels,
            bucket_histograms=self._bucket_histograms,
        )

    def close(self) -> None:
        """Free the port and remove the ``file_sd`` file.  May be called again."""
        if self._closed:
            return
        self._closed = True
        if self._target is not None:
            self._target.remove()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(_CLOSE_SECONDS)

    def _url(self, host: str) -> str:
        """Return what a client can connect to; ``host`` where the server listens on all."""
        reachable = host if self._addr in _ANY_ADDRESS else self._addr
        if ":" in reachable:
            reachable = f"[{reachable}]"
        return f"http://{reachable}:{self.port}/metrics"


def _local_rank(given: int | None) -> int:
    if given is not None:
        return given
    value = os.environ.get("LOCAL_RANK", "0")
    try:
        return int(value)
    except ValueError:
        message = f"LOCAL_RANK is {value!r}, not a number; unset it or pass local_rank=0"
        raise ValueError(message) from None
