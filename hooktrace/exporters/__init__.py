"""Exporters: one file a backend.  A backend's library is imported when its exporter is made."""

from __future__ import annotations

from .base import Exporter
from .opentelemetry import OpenTelemetryExporter
from .prometheus import PrometheusExporter
from .record_file import RecordFileExporter
from .retention import Retention
from .tensorboard import TensorBoardExporter

__all__ = [
    "Exporter",
    "OpenTelemetryExporter",
    "PrometheusExporter",
    "RecordFileExporter",
    "Retention",
    "TensorBoardExporter",
]
