"""Another process of the same host: whether it runs, and its stacks where its interpreter does not.

    every rank    StackWriter: faulthandler on a real-time signal nobody uses --> a private file
    another rank, once that one is suspected --signal--> the file --> text

The file's name says who wrote it, with which signal it is asked and when its process began, so that
whoever asks needs to be told nothing, and a process that only has the same number is never
signalled.  The folder belongs to the user alone; where it does not, or there is no such signal,
no stacks are offered and nobody is asked.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

from ..channel.messages import State

_MOST_BYTES = 1 << 16
"""Of a file of stacks; what is beyond is not read."""
_PREFIX = "stacks"
_STALE_S = 86_400.0
"""So long files of processes that are gone are kept: they tell why a rank does not answer."""
_TRIES = 100


class Process(NamedTuple):
    """A process, and when it began in clock ticks since its host did: a number is used again."""

    pid: int
    began: int

    @property
    def state(self) -> State:
        """Its state, as the system tells it."""
        found = _stat(self.pid)
        if found is None:
            return "gone" if Path("/proc/self/stat").exists() else "unknown"
        letter, began = found
        if began != self.began or letter in "Xx":
            return "gone"
        if letter in "Tt":
            return "stopped"
        return "zombie" if letter == "Z" else "running"


def process(pid: int) -> Process | None:
    """Return a process of this host, ``None`` where there is none or the system does not tell."""
    found = _stat(pid)
    return None if found is None else Process(pid, found[1])


def _stat(pid: int) -> tuple[str, int] | None:
    """Return a process's state, one letter, and its start."""
    try:
        # The name in parentheses may hold anything, parentheses too.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return fields[0], int(fields[19])
    except (OSError, IndexError, ValueError):
        return None


class StackWriter:
    """Has this process write its stacks when it is asked by a signal, until ``close``.

    ``why_not`` says why it cannot, and is "" where it can.  ``rank``: by what others find it.
    """

    def __init__(self, rank: int, folder: Path | None = None) -> None:
        self._folder = folder_of_user() if folder is None else folder
        self._signal = 0
        self._path: Path | None = None
        self._file: IO[bytes] | None = None
        self._pid = os.getpid()
        self.why_not = ""
        try:
            self._begin(rank)
        except (OSError, ValueError, RuntimeError) as error:
            self.why_not = f"{type(error).__name__}: {error}"

    def _begin(self, rank: int) -> None:
        own, number = process(self._pid), free_signal()
        if own is None:
            self.why_not = "the system has no /proc"
            return
        path = self._folder / f"{_PREFIX}-{rank}-{own.pid}-{own.began}-{number or 0}"
        self._file = os.fdopen(_open_new(path), "wb", buffering=0)
        _remove_stale(self._folder)
        self._path = path
        if number is None:
            self.why_not = "the system has no signal that nobody uses"
            return
        # What is there before the handler is there after it: never the default, by which a signal
        # ends the process that another rank sends at this moment, or while the interpreter ends.
        _ignore(number)
        faulthandler.register(number, self._file, all_threads=True, chain=False)
        self._signal = number

    def close(self) -> None:
        """Remove the file, and ignore the signal.  In a forked child, leave the file alone."""
        if self._file is None:
            return
        if self._path is not None and os.getpid() == self._pid:
            with suppress(OSError):
                self._path.unlink()
            with suppress(OSError):
                self._folder.rmdir()  # the last one does
        if self._signal:
            faulthandler.unregister(self._signal)
        self._file.close()
        self._file = None


class Neighbour(NamedTuple):
    """A process of this host that writes its stacks when ``number`` is sent to it."""

    process: Process
    number: int
    path: Path

    def ask(self) -> bool:
        """Send the signal, if the process is there and has a handler for it; does not wait."""
        if self.process.state != "running" or not _has_handler(self.process.pid, self.number):
            return False
        try:
            os.truncate(self.path, 0)
            os.kill(self.process.pid, self.number)
        except OSError:
            return False
        return True

    def stacks(self) -> str:
        """Return what the process has written by now."""
        try:
            with self.path.open("rb") as file:
                return file.read(_MOST_BYTES).decode(errors="replace")
        except OSError:
            return ""


def neighbour(rank: int, pid: int, folder: Path | None = None) -> Neighbour | None:
    """Return a rank of this host; ``None`` where it is on another, or offers nothing."""
    folder = folder_of_user() if folder is None else folder
    if not _is_private(folder):
        return None
    for found in _neighbours(folder, f"{_PREFIX}-{rank}-{pid}-*"):
        return found
    return None


def state_of(rank: int, pid: int) -> State:
    """Return the state of a rank's process, "unknown" where it has left no file on this host."""
    found = neighbour(rank, pid)
    return "unknown" if found is None else found.process.state


def _neighbours(folder: Path, pattern: str) -> Iterator[Neighbour]:
    for path in folder.glob(pattern):
        numbers = path.name.split("-")[2:]
        if len(numbers) == 3 and all(number.isdecimal() for number in numbers):
            pid, began, number = map(int, numbers)
            yield Neighbour(Process(pid, began), number, path)


def folder_of_user() -> Path:
    """Return where the files of this user's processes are, of those that share their numbers."""
    try:
        numbers = os.stat("/proc/self/ns/pid").st_ino
    except OSError:  # no Linux
        numbers = 0
    return Path(tempfile.gettempdir(), f"hooktrace-{os.getuid()}-{numbers}")


def _open_new(path: Path) -> int:
    """Make a file in the private folder, which goes with its last file: perhaps at this moment."""
    for _ in range(_TRIES - 1):
        with suppress(FileNotFoundError):
            return _open_in_private(path)
    return _open_in_private(path)


def _open_in_private(path: Path) -> int:
    _make_private(path.parent)
    with suppress(FileNotFoundError):
        path.unlink()  # of a tracer before this one
    return os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, 0o600)


def _make_private(folder: Path) -> None:
    """Make the folder; raises ``PermissionError`` where it is somebody else's, or open to others.

    In a folder that all may write to, a stranger may have made it first.
    """
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    if not _is_this_users(folder.lstat()):
        raise PermissionError(f"{folder} is not this user's alone; remove it")


def _is_private(folder: Path) -> bool:
    try:
        return _is_this_users(folder.lstat())
    except OSError:
        return False


def _is_this_users(found: os.stat_result) -> bool:
    return (
        stat.S_ISDIR(found.st_mode)
        and found.st_uid == os.getuid()
        and not stat.S_IMODE(found.st_mode) & 0o077
    )


def _remove_stale(folder: Path) -> None:
    """Remove what processes have left that were killed long ago."""
    for found in _neighbours(folder, f"{_PREFIX}-*"):
        with suppress(OSError):
            is_old = time.time() - found.path.stat().st_mtime > _STALE_S
            if is_old and found.process.state in {"gone", "zombie"}:
                found.path.unlink()


_ignored: set[int] = set()
"""Signals that this process ignores because a writer of its own had them."""


def _ignore(number: int) -> None:
    """Ignore a signal, from any thread: ``signal.signal`` is for the main one only."""
    ctypes.pythonapi.PyOS_setsig(number, ctypes.c_void_p(int(signal.SIG_IGN)))
    _ignored.add(number)


def free_signal() -> int | None:
    """Return a real-time signal that nobody in this process uses; ``None`` where there is none.

    One that a writer before had is taken again, rather than a further one.
    """
    first, last = getattr(signal, "SIGRTMIN", None), getattr(signal, "SIGRTMAX", None)
    used = [_mask(os.getpid(), field) for field in ("SigCgt", "SigBlk", "SigIgn")]
    if first is None or last is None or None in used:
        return None
    caught, blocked, ignored = [mask or 0 for mask in used]
    own = sum(1 << (number - 1) for number in _ignored)
    taken = caught | blocked | (ignored & ~own)
    for number in range(last, first, -1):  # the first ones are the C library's favourites
        unused = not taken >> (number - 1) & 1
        if unused and signal.getsignal(number) is signal.SIG_DFL:
            return int(number)
    return None


def _has_handler(pid: int, number: int) -> bool:
    """Return whether a process handles a signal: one that does not would be ended by it."""
    return bool((_mask(pid, "SigCgt") or 0) >> (number - 1) & 1)


def _mask(pid: int, field: str) -> int | None:
    """Return a set of signals as the system tells it, one bit each."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
        return next(int(line.split()[1], 16) for line in lines if line.startswith(field + ":"))
    except (OSError, StopIteration, ValueError, IndexError):
        return None
