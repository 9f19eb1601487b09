"""What tracers export in a job that hooktrace starts to measure it: nothing that the script asks.

    Tracer(exporters=[...]) --the environment says so?--> none of them, but for hooktrace's own

So a script that writes its records into a run leaves that run as it is, binds no port a second
time, and tells no tracker of steps that are only a trial.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..exporters.base import Exporter

logger = logging.getLogger("hooktrace")

MEASURED = "_HOOKTRACE_TUNE"
"""Of the environment of such a job."""

_own: ContextVar[bool] = ContextVar("own", default=False)


@contextmanager
def own_exporters() -> Iterator[None]:
    """Have the tracers that are made meanwhile keep their exporters: they are hooktrace's."""
    token = _own.set(True)
    try:
        yield
    finally:
        _own.reset(token)


def redirected(exporters: Sequence[Exporter]) -> tuple[Exporter, ...]:
    """Return what a tracer exports to: what it was given, but in such a job."""
    if not os.environ.get(MEASURED) or _own.get():
        return tuple(exporters)
    for exporter in exporters:
        try:
            exporter.close()
        except Exception:  # of somebody else's: the job goes on
            logger.exception("an exporter that is not used could not be closed")
    return ()
