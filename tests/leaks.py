"""What a test may leave behind by mistake: open tracers, drain threads, child processes."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from hooktrace import Tracer
from hooktrace.tracing.tracer import open_tracers as known

DRAIN = "hooktrace-drain"
_MULTIPROCESSING = ("resource_tracker", "forkserver")
"""Python's own helpers, which live as long as the process."""


def open_tracers() -> set[Tracer]:
    """Return the tracers of this process that nobody closed."""
    return set(known)


def drains() -> list[threading.Thread]:
    """Return the drain threads that run."""
    return [thread for thread in threading.enumerate() if thread.name == DRAIN]


def children() -> set[int]:
    """Return the processes that this one started and that still run."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return set()  # the common case, for one system call
    return {int(path.name) for path in Path("/proc").glob("[0-9]*") if _is_running_child(path)}


def command(pid: int) -> str:
    """Return a process's command line; empty where it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def _is_running_child(directory: Path) -> bool:
    """Return whether a process is a child of this one, runs, and is not one of Python's helpers."""
    try:
        state, parent, *_ = (directory / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    if state == "Z" or int(parent) != os.getpid():
        return False
    return not any(name in command(int(directory.name)) for name in _MULTIPROCESSING)


def of_this_process() -> str:
    """Close what is left open in this process; return a sentence of it, "" where all is well."""
    left = open_tracers()
    for leak in left:
        leak.close(1)
    said = [f"{len(left)} tracer(s) left open"] if left else []
    if drains():
        said.append("a drain left running")
    return f"pid {os.getpid()}: {', '.join(said)}" if said else ""
