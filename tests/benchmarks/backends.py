"""All exporters at their default settings, with a backend on loopback that takes everything."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from unittest import mock

from hooktrace.exporters import (
    Exporter,
    OpenTelemetryExporter,
    PrometheusExporter,
    RecordFileExporter,
    TensorBoardExporter,
)

EXPORTERS: dict[str, Callable[[Path], Exporter]] = {
    "Prometheus": lambda folder: PrometheusExporter(port=0),
    "TensorBoard": lambda folder: TensorBoardExporter(folder / "tensorboard"),
    "record files": lambda folder: RecordFileExporter(folder / "records"),
    "OpenTelemetry": lambda folder: OpenTelemetryExporter(),
}
"""What makes each as a job would, with its files below a folder."""


def all_exporters(folder: Path) -> list[Exporter]:
    """Return one exporter of each kind."""
    return [make(folder) for make in EXPORTERS.values()]


class _Sink(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:  # the name that http.server calls
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        """Say nothing."""


@contextmanager
def otlp_sink() -> Iterator[None]:
    """Run an OTLP backend in this process, which takes everything and keeps nothing.

    The exporters of processes that are started meanwhile find it by the environment.
    """
    with ThreadingHTTPServer(("127.0.0.1", 0), _Sink) as server:
        endpoint = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            with mock.patch.dict(os.environ, OTEL_EXPORTER_OTLP_ENDPOINT=endpoint):
                yield
        finally:
            server.shutdown()
