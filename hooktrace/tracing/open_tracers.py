"""Tracers that nobody has closed: closed when the process ends, begun anew in a forked child."""

from __future__ import annotations

import atexit
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
