"""Exporters: one file a backend.  A backend's library is imported when its exporter is made."""

from __future__ import annotations

from .base import Exporter
from .opentelemetry import OpenTelemetryExporter
from .prometheus import PrometheusExporter
from .retention import Retention
from .tensorboard import TensorBoardExporter
from .trace_file import TraceFileExporter

__all__ = [
    "Exporter",
    "OpenTelemetryExporter",
    "PrometheusExporter",
    "Retention",
    "TensorBoardExporter",
    "TraceFileExporter",
]
