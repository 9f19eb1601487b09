"""The process's default tracer, as ``HOOKTRACE_*`` environment variables describe it.

``options.py`` says what each sets.  One that cannot work is left out with a warning.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from typing import Any

from .. import exporters  # whose exporters are imported when one is asked for
from ..staging.job import current_rank, new_lock
from .options import ASKING, EXPORTERS, OUTSIDE, TRACER, Setting
from .tracer import State, Tracer

logger = logging.getLogger("hooktrace")

_tracer: Tracer | None = None
_lock = new_lock()


class DefaultTracer(Tracer):
    """The tracer of a process that made none itself, and may not know that nothing is kept."""

    def close(self, timeout_s: float | None = None) -> bool:
        """Close, and log once on rank 0 what was seen where nothing says who keeps it."""
        is_first = self.state is not State.CLOSED
        is_closed = super().close(timeout_s)
        is_unasked = not self._exporters and os.environ.keys().isdisjoint(ASKING)
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
    """Return the arguments that the environment sets."""
    return {s.name: value for s in settings if s.name and (value := s.read()) is not None}
