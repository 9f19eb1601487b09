"""All exporters at their default settings, with a backend on loopback that takes everything."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ...exporters import (
    Exporter,
    OpenTelemetryExporter,
    PrometheusExporter,
    RecordFileExporter,
    TensorBoardExporter,
)

EXPORTERS = ("Prometheus", "TensorBoard", "record files", "OpenTelemetry")
"""What ``make_exporter`` makes."""


def make_exporter(name: str, directory: Path, endpoint: str) -> Exporter:
    """Return an exporter as a job would make it; ``name`` is one of ``EXPORTERS``.

    Files go below ``directory``.  Spans and metrics go to ``endpoint``; where the ``otlp`` extra is
    not installed they are made and then forgotten.
    """
    if name == "Prometheus":
        return PrometheusExporter(port=0)
    if name == "TensorBoard":
        return TensorBoardExporter(directory / "tensorboard")
    if name == "record files":
        return RecordFileExporter(directory / "records")
    os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = endpoint
    return OpenTelemetryExporter(**_providers())


def all_exporters(directory: Path, endpoint: str) -> list[Exporter]:
    """Return one exporter of each kind; see ``make_exporter``."""
    return [make_exporter(name, directory, endpoint) for name in EXPORTERS]


def _providers() -> dict[str, Any]:
    if find_spec("opentelemetry.exporter") is not None:
        return {}
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.trace import TracerProvider

    return {"tracer_provider": TracerProvider(), "meter_provider": MeterProvider()}


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
def otlp_sink() -> Iterator[str]:
    """Run an OTLP backend in this process and give its URL; it takes everything, keeps nothing."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Sink)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="hooktrace-bench-sink", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
