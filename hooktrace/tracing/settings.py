"""The process's default tracer, as ``HOOKTRACE_*`` environment variables describe it.

| variable | what it sets |
| --- | --- |
| ``HOOKTRACE_RUN_ID`` | the run id, the same on all ranks |
| ``HOOKTRACE_PROMETHEUS_PORT`` | serve metrics on this port + local rank; 0 for a free one |
| ``HOOKTRACE_TENSORBOARD_DIR`` | write TensorBoard event files there |
| ``HOOKTRACE_RECORD_DIR`` | write record files there |
| ``HOOKTRACE_ERROR_EVERY`` | steps between two probes of the compression error, 0 for none |
| ``HOOKTRACE_DEBUG`` | 1: look at every bucket of every step; slow |
| ``HOOKTRACE_OPENTELEMETRY`` | 1: export spans and metrics as the ``OTEL_*`` variables say |

An exporter that cannot be made is left out with a warning: a setting in the environment never
stops a training job.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from .. import exporters  # whose exporters are imported when one is asked for
from ..exporters.base import Exporter

__all__ = [
    "debug_from_environment",
    "error_every_from_environment",
    "exporters_from_environment",
    "run_id_from_environment",
]

logger = logging.getLogger("hooktrace")

_PREFIX = "HOOKTRACE_"


def _tensorboard(value: str) -> Exporter:
    return exporters.TensorBoardExporter(value)


def _records(value: str) -> Exporter:
    return exporters.RecordFileExporter(value)


def _opentelemetry(value: str) -> Exporter | None:
    if value.lower() in _NO:
        return None
    return exporters.OpenTelemetryExporter()


_EXPORTERS: dict[str, Callable[[str], Exporter | None]] = {
    "HOOKTRACE_PROMETHEUS_PORT": lambda value: exporters.PrometheusExporter(port=int(value)),
    "HOOKTRACE_TENSORBOARD_DIR": _tensorboard,
    "HOOKTRACE_RECORD_DIR": _records,
    "HOOKTRACE_OPENTELEMETRY": _opentelemetry,
}

_OTHERS = {"HOOKTRACE_RUN_ID", "HOOKTRACE_ERROR_EVERY", "HOOKTRACE_DEBUG"}
_NO = ("", "0", "false", "no")


def exporters_from_environment() -> list[Exporter]:
    """Return the exporters that the environment asks for; warns of unknown variables."""
    known = {*_EXPORTERS, *_OTHERS}
    for name in sorted(os.environ):
        if name.startswith(_PREFIX) and name not in known and "_TEST_" not in name:
            logger.warning(
                "%s is not a setting of hooktrace; the settings are %s",
                name,
                ", ".join(sorted(known)),
            )
    made: list[Exporter] = []
    for name, make in _EXPORTERS.items():
        value = os.environ.get(name, "")
        if not value:
            continue
        try:
            exporter = make(value)
        except Exception as error:  # whatever a backend raises, training goes on
            logger.warning("%s=%s has no effect: %s", name, value, error)
        else:
            if exporter is not None:
                made.append(exporter)
    return made


def run_id_from_environment() -> str | None:
    """Return ``HOOKTRACE_RUN_ID``, or ``None``."""
    return os.environ.get("HOOKTRACE_RUN_ID") or None


def debug_from_environment() -> bool:
    """Return whether ``HOOKTRACE_DEBUG`` asks for debug mode."""
    return os.environ.get("HOOKTRACE_DEBUG", "").lower() not in _NO


def error_every_from_environment(default: int) -> int:
    """Return ``HOOKTRACE_ERROR_EVERY``, or ``default``; warns of what is no number of steps."""
    value = os.environ.get("HOOKTRACE_ERROR_EVERY", "")
    if value and not value.isdecimal():
        logger.warning(
            "HOOKTRACE_ERROR_EVERY=%s has no effect: it is a number of steps, 0 for no probes",
            value,
        )
    return int(value) if value.isdecimal() else default
