"""Tracers and the end of their process: they are closed at exit, and begin anew in a forked child.

A child's copy of a drain has no thread; files, sockets and threads of exporters stay with the
parent.
"""

from __future__ import annotations

import atexit
import logging
import os
from collections.abc import Sequence
from typing import Protocol

from ..exporters.base import Exporter

logger = logging.getLogger("hooktrace")


class OpenTracer(Protocol):
    """What is to be done with a tracer that nobody has closed."""

    def close(self, timeout_s: float | None = None) -> bool:
        """Export what is left."""

    def begin_in_child(self) -> None:
        """Begin anew in a forked child."""


class _LeftWithParent:
    """Stands in a forked child for the parent's exporters, and says once that they are gone."""

    def __init__(self, names: str) -> None:
        self.name = names

    def export(self, batch: object) -> None:
        """Say why nothing is exported."""
        raise RuntimeError(
            "this process was forked after its tracer was made, and files, sockets and threads "
            "stay with the parent; make a new Tracer in the child"
        )

    def close(self) -> None:
        """Do nothing."""


def left_with_parent(exporters: Sequence[Exporter]) -> list[Exporter]:
    """Return what a forked child's tracer has in place of some exporters."""
    return [_LeftWithParent(", ".join(e.name for e in exporters))] if exporters else []


open_tracers: set[OpenTracer] = set()
"""Those that are closed at exit."""


def _close_all() -> None:
    for tracer in list(open_tracers):
        try:
            tracer.close()
        except Exception:
            logger.exception("a tracer could not be closed at exit; call its close() before")


def _begin_all_in_child() -> None:
    for tracer in list(open_tracers):
        tracer.begin_in_child()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_begin_all_in_child)
