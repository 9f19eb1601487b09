"""Whether a tracer's hooks record, and which tracers are open.

Tracers that nobody has closed are closed when the process ends, and begun anew in a forked child.
"""

from __future__ import annotations

import atexit
import enum
import logging
import os
from typing import TYPE_CHECKING

from ..ranks import native_calls

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
