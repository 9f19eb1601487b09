"""Which tracers are open, whether their hooks record, and what anomalies do about it.

    drain --anomalies--> Alarm.hear: logged; to be raised?    the next hook call --> AnomalyError

Tracers that nobody has closed are closed when the process ends, and begun anew in a forked child.
"""

from __future__ import annotations

import atexit
import enum
import logging
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..ranks import native_calls
from ..records import AnomalyRecord
from ..records.errors import AnomalyError
from .options import OnAnomaly

if TYPE_CHECKING:
    from .tracer import Tracer


logger = logging.getLogger("hooktrace")


open_tracers: set[Tracer] = set()


def _close_all() -> None:
    for tracer in list(open_tracers):
        try:
            tracer.close()
        except Exception:
            logger.exception("a tracer could not be closed at exit; call its close() before")
    native_calls.wait()


def _begin_all_in_child() -> None:
    for tracer in list(open_tracers):
        tracer.begin_in_child()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_begin_all_in_child)


class State(enum.Enum):
    """The state of a tracer: the one attribute of it that every hook call reads.

    ::

        OFF <--recording = False, True--> RECORDING <--an anomaly, the next hook call--> ALARMED
                                   any of these --close()--> CLOSED
    """

    RECORDING = enum.auto()
    """Hooks record their calls."""
    OFF = enum.auto()
    """Hooks run untraced: it was switched off, or the system gave no thread."""
    ALARMED = enum.auto()
    """The next hook call raises ``AnomalyError``, and hooks record again."""
    CLOSED = enum.auto()
    """Hooks run untraced, for good."""


RECORDING, ALARMED = State.RECORDING, State.ALARMED
"""The states that hooks compare with, without the look-up in the class."""


class Alarm:
    """Follows ``on_anomaly``."""

    def __init__(self, on_anomaly: OnAnomaly) -> None:
        self._on_anomaly = on_anomaly

    def hear(self, anomalies: Sequence[AnomalyRecord]) -> AnomalyError | None:
        """Log anomalies, if that is wanted, and return what is to be raised of them."""
        if self._on_anomaly == "record":
            return None
        for anomaly in anomalies:
            logger.warning("%s: %s", anomaly.kind, anomaly.message)
        if self._on_anomaly == "warn":
            return None
        # A hook's own exception was raised already; a stall is over, and no fault of the hook.
        unheard = (a for a in anomalies if a.kind not in {"hook_exception", "stall"})
        return next((AnomalyError(a.message) for a in unheard), None)
