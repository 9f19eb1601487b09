"""Records of a job that hooktrace starts to measure it: they go to a folder of its own.

    Tracer(exporters=[...]) --the environment names a folder?--> one record file exporter there

So a script that writes its records into a run leaves that run as it is, binds no
port a second time, and tells no tracker of steps that are only a trial.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Sequence

from .. import exporters as kinds
from ..exporters.base import Exporter

logger = logging.getLogger("hooktrace")

FOLDER = "_HOOKTRACE_REDIRECT"
"""Of the environment: where record files go, each tracer's to a folder of its own in it."""

_numbers = itertools.count()


def is_redirected() -> bool:
    """Return whether this process is of such a job."""
    return bool(os.environ.get(FOLDER))


def redirected(exporters: Sequence[Exporter]) -> tuple[Exporter, ...]:
    """Return what a tracer exports to: what it was given, but in such a job."""
    if not is_redirected():
        return tuple(exporters)
    for exporter in exporters:
        try:
            exporter.close()
        except Exception:  # of somebody else's: the job goes on
            logger.exception("an exporter that is not used could not be closed")
    folder = os.path.join(os.environ[FOLDER], str(next(_numbers)))
    return (kinds.RecordFileExporter(folder),)
