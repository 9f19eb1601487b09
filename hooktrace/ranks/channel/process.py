"""The process of a rank: who it is, and, as another one of its host sees it, whether it runs.

pid --member_of--> Member        Member of this host --/proc--> State
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from .messages import Member, State


def member_of(rank: int, pid: int) -> Member:
    """Return who a rank is, whose process is on this host."""
    found = _stat(pid)
    began, pids = (0, 0) if found is None else (found[1], _pids())
    return Member(rank, pid, socket.gethostname(), _host_id(), began, pids)


def state_of(member: Member) -> State:
    """Return the state of a rank's process, "unknown" where it cannot be seen from here."""
    if not member.began or member.pids != _pids():
        return "unknown"
    letter, began = _stat(member.pid) or ("X", 0)
    if began != member.began or letter in "XxZ":  # of a zombie nothing but its number is left
        return "gone"
    return "stopped" if letter in "Tt" else "running"


def _host_id() -> str:
    """Return what is the same for processes that reach each other by loopback, and no others."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        network = os.stat("/proc/self/ns/net").st_ino
    except OSError:  # no Linux
        return socket.gethostname()
    return f"{boot}-{network}"


def _pids() -> int:
    """Return what is the same for processes that know each other by the same numbers."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:  # no Linux
        return 0


def _stat(pid: int) -> tuple[str, int] | None:
    """Return a process's state, one letter, and its start in clock ticks since the host's."""
    try:
        # The name in parentheses may hold anything, parentheses too.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return fields[0], int(fields[19])
    except (OSError, IndexError, ValueError):
        return None
