"""What the drain needs of an exporter: two methods."""

from __future__ import annotations

from typing import Protocol

from ..records import Batch


class Exporter(Protocol):
    """Receives batches in the drain thread; never called from the training thread.

    ``name`` stands in logs and in the metric label ``exporter``.  An exporter that raises from
    ``export`` is closed, disabled and counted; training goes on.

    An exporter that gives things up by itself (a full file, a backend that is down) logs that once
    and has an attribute ``lost``: a mapping from what was lost to how many, read by the drain.
    """

    name: str

    def export(self, batch: Batch) -> None:
        """Take one batch.  Called for every drain that has news, one at a time."""

    def close(self) -> None:
        """Write out what is held and let go of files, sockets and threads.  Called once."""
