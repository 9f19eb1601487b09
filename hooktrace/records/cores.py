"""How many processes are worth while at once."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """Return on how many cores this process may run: of all where the system does not tell."""
    if hasattr(os, "process_cpu_count"):  # since Python 3.13
        return os.process_cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
