"""What the drain needs of an exporter: two methods; and what an exporter needs that is missing."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from ..records import Batch

logger = logging.getLogger("hooktrace")


class Exporter(Protocol):
    """Receives batches in the drain thread; never called from the training thread.

    An exporter that raises from ``export`` is closed, disabled and counted; training goes on.

    It may have two attributes.  ``name`` stands in logs and in the metric label ``exporter``; the
    default is its class's name.  ``lost`` is for an exporter that gives things up by itself (a full
    file, a backend that is down), which it logs once: a mapping from what was lost to how many.
    """

    def export(self, batch: Batch) -> None:
        """Take one batch.  Called for every drain that has news, one at a time."""

    def close(self) -> None:
        """Write out what is held and let go of files, sockets and threads.  Called once."""


def checked(exporters: Iterable[Exporter]) -> tuple[Exporter, ...]:
    """Return exporters as they are; raises ``TypeError`` where something is none."""
    fix = 'pass a list of exporters, such as [RecordFileExporter("runs/a")]'
    if not isinstance(exporters, Iterable):
        raise TypeError(f"exporters is {exporters!r}; {fix}")
    given = tuple(exporters)
    for exporter in given:
        methods = [getattr(exporter, name, None) for name in ("export", "close")]
        if isinstance(exporter, type) or not all(map(callable, methods)):
            raise TypeError(f"{exporter!r} is no exporter; {fix}")
    return given


is_measured = False
"""Whether hooktrace has started the job to measure it: nothing is exported that the script asks.

Its runs, ports and trackers hear nothing of steps that are only a trial.
"""


def redirected(exporters: Sequence[Exporter]) -> tuple[Exporter, ...]:
    """Return what a tracer exports to: what it was given, but in such a job.

    There it is what hooktrace measures the job with: its class sets ``measures_the_job``.
    """
    if not is_measured:
        return tuple(exporters)
    own = [one for one in exporters if getattr(type(one), "measures_the_job", False)]
    for exporter in exporters:
        if exporter not in own:
            try:
                exporter.close()
            except Exception:  # of somebody else's: the job goes on
                logger.exception("an exporter that is not used could not be closed")
    return tuple(own)


@contextmanager
def needing(package: str, exporter: str) -> Iterator[None]:
    """Turn a failed import inside the block into an ``ImportError`` that says what installs it."""
    try:
        yield
    except ImportError as error:
        raise ImportError(
            f"the {exporter} exporter needs {package} ({error}); pip install 'hooktrace[exporters]'"
        ) from error
