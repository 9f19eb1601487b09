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
import threading
from collections.abc import Callable

from .. import exporters  # whose exporters are imported when one is asked for
from ..exporters.base import Exporter
from .state import State
from .tracer import ERROR_EVERY, Tracer

logger = logging.getLogger("hooktrace")

_NO = ("", "0", "false", "no")


def _opentelemetry(value: str) -> Exporter | None:
    return None if value.lower() in _NO else exporters.OpenTelemetryExporter()


_Make = Callable[[str], Exporter | None]

_EXPORTERS: dict[str, _Make] = {
    "HOOKTRACE_PROMETHEUS_PORT": lambda value: exporters.PrometheusExporter(port=int(value)),
    "HOOKTRACE_TENSORBOARD_DIR": lambda value: exporters.TensorBoardExporter(logdir=value),
    "HOOKTRACE_RECORD_DIR": lambda value: exporters.RecordFileExporter(logdir=value),
    "HOOKTRACE_OPENTELEMETRY": _opentelemetry,
}

_KNOWN = sorted({*_EXPORTERS, "HOOKTRACE_RUN_ID", "HOOKTRACE_ERROR_EVERY", "HOOKTRACE_DEBUG"})

_tracer: Tracer | None = None
_lock = threading.Lock()


def default_tracer() -> Tracer:
    """Return the tracer that ``trace()`` uses when it is given none.

    It is made on first use, set up from ``HOOKTRACE_*`` environment variables, and made anew when
    it was closed.
    """
    global _tracer  # noqa: PLW0603  # the one process-wide tracer
    with _lock:
        if _tracer is None or _tracer.state is State.CLOSED:
            _tracer = Tracer(
                exporters_from_environment(),
                run_id=os.environ.get("HOOKTRACE_RUN_ID") or None,
                error_every=error_every_from_environment(ERROR_EVERY),
                debug=debug_from_environment(),
            )
        return _tracer


def _renew_lock() -> None:
    global _lock  # noqa: PLW0603  # the parent may have held it
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


def exporters_from_environment() -> list[Exporter]:
    """Return the exporters that the environment asks for; warns of unknown variables."""
    for name in sorted(os.environ):
        if name.startswith("HOOKTRACE_") and name not in _KNOWN and "_TEST_" not in name:
            logger.warning(
                "%s is not a setting of hooktrace; the settings are %s", name, ", ".join(_KNOWN)
            )
    asked = [(name, make, os.environ.get(name)) for name, make in _EXPORTERS.items()]
    made = [_made(name, make, value) for name, make, value in asked if value]
    return [exporter for exporter in made if exporter is not None]


def _made(name: str, make: _Make, value: str) -> Exporter | None:
    try:
        return make(value)
    except Exception as error:  # whatever a backend raises, training goes on
        logger.warning("%s=%s has no effect: %s", name, value, error)
        return None


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
