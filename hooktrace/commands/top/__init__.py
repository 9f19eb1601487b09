"""``hooktrace top``: the whole job, live in a terminal.

    the hub --JobSnapshot (job_client.py)--> live.py --View, snapshot (picture.py)--> the terminal
    keys.py --key--> state.py --> the next View, and what to ask the hub

``state.py`` and ``picture.py`` are functions of their input.
"""

from __future__ import annotations

from pathlib import Path

from ...ranks.control.client import Client
from ..ctl import address_of
from .job_client import JobClient
from .live import watch

__all__ = ["run_top"]


def run_top(run: Path | None, *, connect: str | None) -> None:
    """Show the job of a run's directory, or of the hub at ``HOST:PORT``, until the key q.

    Raises ``UsageError`` where the hub is not reached.
    """
    hub = JobClient(lambda: Client(address_of(run, connect)))
    try:
        watch(hub, str(run if connect is None else connect))
    finally:
        hub.close()
