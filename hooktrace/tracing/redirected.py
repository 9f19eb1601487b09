"""What tracers export in a job that hooktrace starts to measure it: nothing that the script asks.

    Tracer(exporters=[...]) --is_measured?--> none of them, but those that measure it

So a script that writes its records into a run leaves that run as it is, binds no port a second
time, and tells no tracker of steps that are only a trial.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..exporters.base import Exporter

logger = logging.getLogger("hooktrace")

is_measured = False
"""Set by who takes the job's models over (``integrations/start.py``)."""


def redirected(exporters: Sequence[Exporter]) -> tuple[Exporter, ...]:
    """Return what a tracer exports to: what it was given, but in such a job.

    There it is what hooktrace measures the job with: its class sets ``measures_the_job``.
    """
    if not is_measured:
        return tuple(exporters)
    own = []
    for exporter in exporters:
        if getattr(type(exporter), "measures_the_job", False):
            own.append(exporter)
            continue
        try:
            exporter.close()
        except Exception:  # of somebody else's: the job goes on
            logger.exception("an exporter that is not used could not be closed")
    return tuple(own)
