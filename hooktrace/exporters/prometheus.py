"""Metrics that Prometheus scrapes: one HTTP server a process, on ``port + local_rank``.

    Batch --Observer--> Aggregates --Endpoint, at each scrape--> prometheus_client's server

The drain adds up; a scrape copies the totals under a lock and formats the copy in the server's own
thread.  prometheus_endpoint.py has the port, which the exporters of a process share;
prometheus_format.py the metric families; target_file.py tells Prometheus where they are.
"""

from __future__ import annotations

import os
from pathlib import Path

from ..records import Batch
from ..records.metrics import TARGET_LABELS
from .observations import Observer
from .prometheus_endpoint import Wanted, join
from .target_file import TargetFile

_ANY_ADDRESS = ("", "0.0.0.0", "::")


class PrometheusExporter:
    """Serves the metrics table to Prometheus over HTTP.

    It binds in the constructor: to ``port + local_rank``, or to a free port with ``port=0``; the
    result is in ``port`` and ``url``.  ``local_rank`` is taken from ``LOCAL_RANK`` (0 without it).
    A port in use is one warning, and the next free one is taken, ``LOCAL_WORLD_SIZE`` ports on.
    Exporters of one process that ask for the same port share it, and what they count adds up.
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
        self._addr = addr
        self._target = None if file_sd is None else TargetFile(Path(file_sd))
        self._announced = False
        self._observer = Observer(self.name)
        wanted = port + _local_rank(local_rank) if port else 0
        self._endpoint = join(Wanted(wanted, addr, bucket_histograms))
        self.port = self._endpoint.port
        self.url = self._url("localhost")
        self._closed = False

    def export(self, batch: Batch) -> None:
        """Add a batch to the totals that the next scrape reads."""
        if not self._announced:
            self._announced = True
            labels = {name: str(getattr(batch.run, name)) for name in TARGET_LABELS}
            self._endpoint.announce(labels, self._url(batch.run.host), self._target)
        self._endpoint.aggregates.add(self._observer.observe(batch), self)

    def close(self) -> None:
        """Free the port and remove the ``file_sd`` file, unless another exporter shares the port.

        May be called again.
        """
        if not self._closed:
            self._closed = True
            self._endpoint.leave(self)

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
