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
    TensorBoardExporter,
    TraceFileExporter,
)

__all__ = ["all_exporters", "otlp_sink"]


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


def all_exporters(directory: str, endpoint: str) -> list[Exporter]:
    """Return one exporter of each kind, as a job would make them.

    Files go below ``directory``.  Spans and metrics go to ``endpoint``; where the ``otlp`` extra is
    not installed they are made and then forgotten.
    """
    os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = endpoint
    providers: dict[str, Any] = {}
    if find_spec("opentelemetry.exporter") is None:
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.trace import TracerProvider

        providers = {"tracer_provider": TracerProvider(), "meter_provider": MeterProvider()}
    return [
        PrometheusExporter(port=0),
        TensorBoardExporter(Path(directory, "tensorboard")),
        TraceFileExporter(Path(directory, "trace")),
        OpenTelemetryExporter(**providers),
    ]
