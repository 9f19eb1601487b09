"""The public names, in the one place where they are listed."""

from .base import Exporter as Exporter
from .opentelemetry import OpenTelemetryExporter as OpenTelemetryExporter
from .prometheus import PrometheusExporter as PrometheusExporter
from .record_file import RecordFileExporter as RecordFileExporter
from .retention import Retention as Retention
from .tensorboard import TensorBoardExporter as TensorBoardExporter
