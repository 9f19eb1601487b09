"""What tracers export in a job that hooktrace starts to measure it: nothing that the script asks.

    Tracer(exporters=[...]) --is_measured?--> none of them, but for hooktrace's own

So a script that writes its records into a run leaves that run as it is, binds no port a second
time, and tells no tracker of steps that are only a trial.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..exporters.base import Exporter

logger = logging.getLogger("hooktrace")

is_measured = False
"""Set by who takes the job's models over (``integrations/start.py``)."""

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
    if not is_measured or _own.get():
        return tuple(exporters)
    for exporter in exporters:
        try:
            exporter.close()
        except Exception:  # of somebody else's: the job goes on
            logger.exception("an exporter that is not used could not be closed")
    return ()
