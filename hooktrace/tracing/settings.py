"""The process's default tracer, as ``HOOKTRACE_*`` environment variables describe it.

``docs/exporters.md`` says what each sets.  One that cannot work is left out with a warning: a
setting in the environment never stops a training job.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import Any, get_args

from .. import exporters  # whose exporters are imported when one is asked for
from ..ranks.job import current_rank
from ..records.errors import is_seconds
from .hang_options import OnHang
from .state import State
from .tracer import Tracer

logger = logging.getLogger("hooktrace")


def is_on(value: str) -> bool:
    """Return what a switch's value means."""
    return value.lower() not in ("0", "false", "no")


def _steps(value: str) -> int:
    if not value.isdecimal():
        raise ValueError("it is a number of steps, 0 for no probes")
    return int(value)


def _seconds(value: str) -> float:
    if not is_seconds(float(value)):
        raise ValueError("it is a number of seconds")
    return float(value)


def _on_hang(value: str) -> str:
    if value not in get_args(OnHang):
        raise ValueError(f"it is one of {', '.join(get_args(OnHang))}")
    return value


_PROMETHEUS: dict[str, tuple[str, Callable[[str], object]]] = {
    "HOOKTRACE_PROMETHEUS_ADDR": ("addr", str),
    "HOOKTRACE_PROMETHEUS_FILE_SD": ("file_sd", str),
    "HOOKTRACE_PROMETHEUS_BUCKET_HISTOGRAMS": ("bucket_histograms", is_on),
}
"""What else ``PrometheusExporter`` is given, where HOOKTRACE_PROMETHEUS_PORT asks for one."""


def _prometheus(port: str) -> object:
    return exporters.PrometheusExporter(port=int(port), **_read_all(_PROMETHEUS))


_EXPORTERS: dict[str, Callable[[str], object]] = {
    "HOOKTRACE_PROMETHEUS_PORT": _prometheus,
    "HOOKTRACE_TENSORBOARD_DIR": lambda value: exporters.TensorBoardExporter(logdir=value),
    "HOOKTRACE_RECORD_DIR": lambda value: exporters.RecordFileExporter(logdir=value),
    "HOOKTRACE_OPENTELEMETRY": lambda value: (
        exporters.OpenTelemetryExporter() if is_on(value) else None
    ),
}

_ARGUMENTS: dict[str, tuple[str, Callable[[str], object]]] = {
    "HOOKTRACE_RUN_ID": ("run_id", str),
    "HOOKTRACE_ERROR_EVERY": ("error_every", _steps),
    "HOOKTRACE_DEBUG": ("debug", is_on),
    "HOOKTRACE_CHANNEL": ("channel", is_on),
    "HOOKTRACE_HANG_AFTER_S": ("hang_after_s", _seconds),
    "HOOKTRACE_ON_HANG": ("on_hang", _on_hang),
}
"""The other arguments of ``Tracer``, and how their values are read."""

_ELSEWHERE = (
    *("HOOKTRACE_CHANNEL_TOKEN", "HOOKTRACE_HOOK", "HOOKTRACE_BUCKET_CAP_MB", "HOOKTRACE_TUNING"),
)
"""Settings of ``integrations``, and of the clients of a job that runs."""

_tracer: Tracer | None = None
_lock = threading.Lock()


class DefaultTracer(Tracer):
    """The tracer of a process that made none itself, and may not know that nothing is kept."""

    def close(self, timeout_s: float | None = None) -> bool:
        """Close, and log once on rank 0 what was seen where nothing says who keeps it."""
        is_first = self.state is not State.CLOSED
        is_closed = super().close(timeout_s)
        is_unasked = not self._exporters and os.environ.keys().isdisjoint(_EXPORTERS)
        if is_first and is_unasked and current_rank() == 0:
            self._say_what_is_lost()
        return is_closed

    def _say_what_is_lost(self) -> None:
        steps = len(self.steps())
        if not steps:
            return
        seen = [summary.headline for summary in self.summary()]
        logger.warning(
            "nothing keeps what the default tracer saw: %s; to keep the next run, set "
            "HOOKTRACE_RECORD_DIR=runs/mine, then: hooktrace report runs/mine",
            "; ".join(seen) or f"{steps} step{'s'[: steps > 1]}, too few for medians",
        )


def default_tracer() -> Tracer:
    """Return the tracer that ``trace()`` uses when it is given none.

    It is made on first use, set up from ``HOOKTRACE_*`` environment variables, and made anew when
    it was closed.
    """
    global _tracer  # noqa: PLW0603  # the one process-wide tracer
    with _lock:
        if _tracer is None or _tracer.state is State.CLOSED:
            _tracer = DefaultTracer(**from_environment())
        return _tracer


def _renew_lock() -> None:
    global _lock  # noqa: PLW0603  # the parent may have held it
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


def from_environment() -> dict[str, Any]:
    """Return the arguments of ``Tracer`` that the environment sets; warns of unknown variables."""
    known = sorted({*_EXPORTERS, *_ARGUMENTS, *_PROMETHEUS, *_ELSEWHERE})
    for name in sorted(os.environ):
        if name.startswith("HOOKTRACE_") and name not in known and "_TEST_" not in name:
            logger.warning(
                "%s is not a setting of hooktrace; the settings are %s", name, ", ".join(known)
            )
    if not os.environ.get("HOOKTRACE_PROMETHEUS_PORT"):
        for name in filter(os.environ.get, _PROMETHEUS):
            logger.warning("%s has no effect: set HOOKTRACE_PROMETHEUS_PORT too", name)
    made = [_read(name, make) for name, make in _EXPORTERS.items()]
    return {
        "exporters": [exporter for exporter in made if exporter is not None],
        **_read_all(_ARGUMENTS),
    }


def _read_all(variables: dict[str, tuple[str, Callable[[str], object]]]) -> dict[str, Any]:
    """Return the arguments that some variables set."""
    read = {argument: _read(name, reader) for name, (argument, reader) in variables.items()}
    return {argument: value for argument, value in read.items() if value is not None}


def _read(name: str, reader: Callable[[str], object]) -> object:
    """Return what a variable says, ``None`` where it is not set or cannot work."""
    value = os.environ.get(name)
    if not value:
        return None
    try:
        return reader(value)
    except Exception as error:  # whatever a backend raises, training goes on
        logger.warning("%s=%s has no effect: %s", name, value, error)
        return None
