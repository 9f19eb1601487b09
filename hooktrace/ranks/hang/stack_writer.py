"""Stacks of another process of the same host, which cannot tell them: its interpreter is held.

    every rank    StackWriter: faulthandler on a real-time signal nobody uses --> a file in memory
    another rank, once that one is suspected --signal--> the file --> text

The file's name says with which signal its process is asked, and others find it among that process's
descriptors, so that whoever asks needs to be told nothing.  Only processes of the same user can.
Where there is no such signal, or no such file, no stacks are offered and nobody is asked.
"""

from __future__ import annotations

import ctypes
import faulthandler
import fcntl
import os
import signal
from contextlib import suppress
from pathlib import Path

from ..channel.messages import Member
from ..channel.process import state_of

_MOST_BYTES = 1 << 16
"""Of stacks; what is beyond is not read."""
_NAME = "hooktrace-stacks-"


class StackWriter:
    """Has this process write its stacks when it is asked by a signal, until ``close``."""

    def __init__(self) -> None:
        self._file = -1
        self._signal = free_signal()
        with suppress(AttributeError, OSError, ValueError, RuntimeError):  # not on this system
            if self._signal is not None:
                self._begin(self._signal)

    def _begin(self, number: int) -> None:
        self._file = os.memfd_create(f"{_NAME}{number}")
        fcntl.fcntl(self._file, fcntl.F_SETFL, os.O_APPEND)  # whoever asks empties it before
        # What is there before the handler is there after it: never the default, by which a signal
        # ends the process that another rank sends at this moment, or while the interpreter ends.
        ctypes.pythonapi.PyOS_setsig(number, ctypes.c_void_p(int(signal.SIG_IGN)))
        _own.add(number)
        faulthandler.register(number, self._file, all_threads=True, chain=False)

    def close(self) -> None:
        """Let go of the file, and ignore the signal."""
        if self._file < 0:
            return
        assert self._signal is not None
        faulthandler.unregister(self._signal)
        os.close(self._file)
        self._file = -1


def ask(member: Member) -> bool:
    """Have a rank of this host write its stacks, if it offers that; does not wait for them."""
    found = _offered(member)
    # One that does not handle the signal would be ended by it.
    if found is None or not (_mask(member.pid, "SigCgt") or 0) >> (found[1] - 1) & 1:
        return False
    try:
        os.truncate(found[0], 0)
        os.kill(member.pid, found[1])
    except OSError:
        return False
    return True


def written(member: Member) -> str:
    """Return the stacks that a rank of this host has written by now."""
    found = _offered(member)
    if found is None:
        return ""
    try:
        with found[0].open("rb") as file:
            return file.read(_MOST_BYTES).decode(errors="replace")
    except OSError:
        return ""


def _offered(member: Member) -> tuple[Path, int] | None:
    """Return what a process writes to, and when which signal is sent to it.

    ``None`` where it offers nothing, is not there, or is on another host.
    """
    if state_of(member) != "running":
        return None
    with suppress(OSError):
        for path in Path(f"/proc/{member.pid}/fd").iterdir():
            with suppress(OSError, ValueError):  # a descriptor that is closed meanwhile
                _, _, number = os.readlink(path).partition(f"memfd:{_NAME}")
                return path, int(number.removesuffix(" (deleted)"))
    return None


_own: set[int] = set()
"""Signals that a writer of this process has or had, and which are ignored without one."""


def free_signal() -> int | None:
    """Return a real-time signal that nobody in this process uses; ``None`` where there is none.

    One that a writer before had is taken again, rather than a further one.
    """
    first, last = getattr(signal, "SIGRTMIN", None), getattr(signal, "SIGRTMAX", None)
    used = [_mask(os.getpid(), field) for field in ("SigCgt", "SigBlk", "SigIgn")]
    if first is None or last is None or None in used:
        return None
    caught, blocked, ignored = [mask or 0 for mask in used]
    own = sum(1 << (number - 1) for number in _own)
    taken = caught | blocked | (ignored & ~own)
    for number in range(last, first, -1):  # the first ones are the C library's favourites
        unused = not taken >> (number - 1) & 1
        if unused and signal.getsignal(number) is signal.SIG_DFL:
            return int(number)
    return None


def _mask(pid: int, field: str) -> int | None:
    """Return a set of signals as the system tells it, one bit each."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
        return next(int(line.split()[1], 16) for line in lines if line.startswith(field + ":"))
    except (OSError, StopIteration, ValueError, IndexError):
        return None
