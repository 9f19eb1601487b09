"""What the drain needs of an exporter: two methods; and what an exporter needs that is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, runtime_checkable

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


@contextmanager
def needing(package: str, exporter: str) -> Iterator[None]:
    """Turn a failed import inside the block into an ``ImportError`` that says what installs it."""
    try:
        yield
    except ImportError as error:
        raise ImportError(
            f"the {exporter} exporter needs {package} ({error}); pip install 'hooktrace[exporters]'"
        ) from error


@runtime_checkable
class RecordWriter(Protocol):
    """An exporter that writes records beside which other files of the run may stand."""

    @property
    def logdir(self) -> Path:
        """The directory that it was made with."""

    def keep_detail(self, model: str, first: int, steps: int) -> None:
        """Keep so many steps of a model in detail from ``first`` on.  Any thread."""
