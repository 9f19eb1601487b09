"""Every setting, declared once: ``Tracer``'s arguments and ``HOOKTRACE_*`` environment variables.

What cannot work is left out of the environment's with a warning, and an error as an argument.
Nothing here imports torch or msgspec: ``hooktrace run`` reads it in every child process.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from numbers import Integral, Real
from typing import Any, Literal, NamedTuple, get_args

from .. import exporters  # whose exporters are imported when one is asked for

logger = logging.getLogger("hooktrace")

OnAnomaly = Literal["record", "warn", "raise"]
OnHang = Literal["record", "warn", "dump", "abort"]


class Setting(NamedTuple):
    """One setting: an argument, a ``variable`` of the environment, or both.

    ``type``: a ``float`` is above 0, in the unit that ends the name; an ``object`` is not checked.
    ``help``: Markdown.  ``least``: of an ``int``.
    """

    name: str
    type: Any
    default: Any
    variable: str = ""
    help: str = ""
    least: int = 0

    @property
    def wanted(self) -> str:
        """The values that can work, as errors name them."""
        if self.type is int:
            return f"a whole number of at least {self.least}"
        if self.type is float:
            return f"a number of {'MB' if self.name.endswith('_mb') else 'seconds'} above 0"
        return f"one of {', '.join(get_args(self.type))}"

    def accepts(self, value: object) -> bool:
        """Return whether a value can work."""
        if value is None and self.default is None:
            return True
        if self.type is int:
            return isinstance(value, Integral) and int(value) >= self.least
        if self.type is float:  # a thread cannot wait for longer
            return isinstance(value, Real) and 0 < float(value) <= threading.TIMEOUT_MAX
        return not get_args(self.type) or value in get_args(self.type)

    def read(self) -> Any:
        """Return what the environment sets; ``None``, with a warning, for what cannot work."""
        text = os.environ.get(self.variable)
        if not text:
            return None
        if self.type is bool:
            return text.lower() not in ("0", "false", "no")
        with suppress(ValueError):
            value = self.type(text) if self.type in (int, float) else text
            if self.accepts(value):
                return value
        logger.warning("%s=%s has no effect; set it to %s", self.variable, text, self.wanted)
        return None


def check_arguments(values: Mapping[str, object]) -> None:
    """Raise ``ValueError`` for an argument of ``Tracer`` that cannot work."""
    for setting in TRACER:
        if not setting.accepts(value := values[setting.name]):
            raise ValueError(f"{setting.name} is {value!r}; pass {setting.wanted}")


# fmt: off
# A table is read line by line: name, type, default, variable, and what is said or bounded.
TRACER = (
    Setting("exporters", object, ()),
    Setting("clock", object, time.perf_counter_ns),
    Setting("run_id", str, None, "HOOKTRACE_RUN_ID"),
    Setting("ring_capacity", int, 16384, least=1),
    Setting("keep_steps", int, 1024),
    Setting("keep_buckets", int, 8192),
    Setting("error_every", int, 100, "HOOKTRACE_ERROR_EVERY"),
    Setting("error_all_buckets", bool, False),
    Setting("debug", bool, False, "HOOKTRACE_DEBUG"),
    Setting("align_clocks", bool, True),
    Setting("channel", bool, True, "HOOKTRACE_CHANNEL"),
    Setting("on_anomaly", OnAnomaly, "record"),
    Setting("hang_after_s", float, None, "HOOKTRACE_HANG_AFTER_S"),
    Setting("on_hang", OnHang, "warn", "HOOKTRACE_ON_HANG"),
    Setting("first_step", int, 0),
    Setting("interval_s", float, 0.5),
)
"""The arguments of ``Tracer``, in their order; its docstring, which editors show, has the help."""

EXPORTERS = {
    "RecordFileExporter": (Setting("logdir", str, None, "HOOKTRACE_RECORD_DIR",
        "write record files there"),),
    "TensorBoardExporter": (Setting("logdir", str, None, "HOOKTRACE_TENSORBOARD_DIR",
        "write TensorBoard event files there"),),
    "PrometheusExporter": (
        Setting("port", int, 9464, "HOOKTRACE_PROMETHEUS_PORT",
            "serve metrics on this port + local rank; 0 for a free one"),
        Setting("addr", str, "127.0.0.1", "HOOKTRACE_PROMETHEUS_ADDR",
            "with the port: the address to bind, 127.0.0.1 without it"),
        Setting("file_sd", str, None, "HOOKTRACE_PROMETHEUS_FILE_SD",
            "with the port: the folder of the files by which Prometheus finds the ranks"),
        Setting("bucket_histograms", bool, True, "HOOKTRACE_PROMETHEUS_BUCKET_HISTOGRAMS",
            "with the port, `0`: durations of buckets by sum and count alone"),
    ),
    "OpenTelemetryExporter": (Setting("", bool, False, "HOOKTRACE_OPENTELEMETRY",
        "`1`: export spans and metrics as the `OTEL_*` variables say"),),
}
"""By class: the setting that asks for an exporter, then those that have no effect alone."""

ASKING = tuple(asking.variable for asking, *_ in EXPORTERS.values())

HOOK = Setting("hook", str, None, "HOOKTRACE_HOOK",
    "with `hooktrace run`: the hook of models that register none, by a name of `hooktrace hooks`")
BUCKET_CAP_MB = Setting("bucket_cap_mb", float, None, "HOOKTRACE_BUCKET_CAP_MB",
    "with `hooktrace run`: DDP's `bucket_cap_mb`")
CHANNEL_TOKEN = Setting("", str, None, "HOOKTRACE_CHANNEL_TOKEN", "the token for `hooktrace ctl "
    "--connect` and `hooktrace top --connect`; a job that traces does not read it")
TUNING = Setting("", bool, False, "HOOKTRACE_TUNING", "`1` in a job that [`hooktrace tune`]"
    "(tune.md) has started, for scripts that would rather not save then")
DOCS_URL = Setting("", str, None, "HOOKTRACE_DOCS_URL", "where the site of these pages is, for the "
    "addresses printed with findings, anomalies and hangs; or a page's address with `{page}` in it")
# fmt: on

OUTSIDE = (*sum(EXPORTERS.values(), ()), HOOK, BUCKET_CAP_MB, CHANNEL_TOKEN, TUNING, DOCS_URL)
"""The settings that are no arguments of ``Tracer``: of the environment alone."""


def from_environment() -> dict[str, Any]:
    """Return the arguments of ``Tracer`` that the environment sets; warns of unknown variables."""
    known = sorted(filter(None, (setting.variable for setting in (*TRACER, *OUTSIDE))))
    for name in sorted(os.environ):
        if name.startswith("HOOKTRACE_") and name not in known and "_TEST_" not in name:
            logger.warning(
                "%s is not a setting of hooktrace; the settings are %s", name, ", ".join(known)
            )
    made = [_exporter(name, *options) for name, options in EXPORTERS.items()]
    return {"exporters": [one for one in made if one is not None], **_read_all(TRACER)}


def _exporter(name: str, asking: Setting, *others: Setting) -> Any:
    """Return the exporter that the environment asks for, ``None`` where it does not or cannot."""
    text = os.environ.get(asking.variable)
    for setting in others:
        if not text and os.environ.get(setting.variable):
            logger.warning("%s has no effect: set %s too", setting.variable, asking.variable)
    value = asking.read()
    if value is None or value is False:  # 0 is a port
        return None
    try:
        return getattr(exporters, name)(**_read_all((asking, *others)))
    except Exception as error:  # whatever a backend raises, training goes on
        logger.warning("%s=%s has no effect: %s", asking.variable, text, error)
        return None


def _read_all(settings: Iterable[Setting]) -> dict[str, Any]:
    return {s.name: value for s in settings if s.name and (value := s.read()) is not None}
