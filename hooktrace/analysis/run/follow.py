"""A rank's record files while they are being written: what is new is read, nothing twice.

    files --whole lines since the last call--> ColumnBuilder (rows stay) --track--> RankTrack

    followers --read_in_turns--> all of them further on

A line that is only half there waits for its end.  A file that was replaced (its inode is another)
or cut begins anew: its rank starts over with all its files.
"""

from __future__ import annotations

import gc
import os
import pickle
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...records.content import joined
from ...records.cores import usable_cores
from ...records.reader import RecordReader
from .columns import RankTrack
from .read import ColumnBuilder


@dataclass(slots=True)
class _File:
    reader: RecordReader
    inode: int
    size: int = 0
    position: int = 0


class TrackFollower:
    """Reads the files of one rank, oldest first, in portions.

    ``errors``: what the last ``look`` could not open, by file name, with the reason.  ``epoch``
    counts how often the files began anew.
    """

    def __init__(self) -> None:
        self.errors: dict[str, str] = {}
        self.epoch = -1
        self._restart()

    def _restart(self) -> None:
        self.epoch += 1
        self._builder = ColumnBuilder()
        self._files: dict[Path, _File] = {}

    @property
    def read_bytes(self) -> int:
        """How much was read of what ``look`` found."""
        return sum(f.position for f in self._files.values())

    @property
    def total_bytes(self) -> int:
        """The size of the files at the last ``look``, less a half line at their end once seen."""
        return sum(f.size for f in self._files.values())

    def look(self, paths: Sequence[Path]) -> None:
        """Take in which files there are, and how long they are now.

        A file that is gone keeps the rows that were read from it.
        """
        self.errors = {}
        found: dict[Path, os.stat_result] = {}
        for path in paths:
            try:
                status = os.stat(path)
            except OSError as error:
                self.errors[path.name] = error.strerror or str(error)
                continue
            if stat.S_ISREG(status.st_mode):
                found[path] = status
            else:
                self.errors[path.name] = "not a regular file"
        known = self._files
        if any(
            path in known and (s.st_ino != known[path].inode or s.st_size < known[path].position)
            for path, s in found.items()
        ):
            self._restart()
        for path, status in found.items():
            if path not in self._files:
                self._files[path] = _File(self._builder.reader(), status.st_ino)
            self._files[path].size = status.st_size

    def read(self, most: int) -> int:
        """Read up to about ``most`` bytes that are new; returns how many were, 0 at the end."""
        for path, file in self._files.items():
            is_behind = file.position < file.size and path.name not in self.errors
            if is_behind and (count := self._read(path, file, most)):
                return count
        return 0

    def _read(self, path: Path, file: _File, most: int) -> int:
        try:
            with open(path, "rb") as source:
                source.seek(file.position)
                block = source.read(min(most, file.size - file.position))
        except OSError as error:
            self.errors[path.name] = error.strerror or str(error)
            return 0
        end = block.rfind(b"\n") + 1
        if not end:
            if len(block) < most:
                file.size = file.position  # half a line: nothing to read until the next look
                return 0
            end = len(block)  # a line longer than all that hooktrace writes
        file.reader.feed(block[:end])
        file.position += end
        return end

    def copied(self) -> bytes:
        """Return a copy without the rows, pickled: another process can read on from here."""
        rows = self._builder.take_rows()
        try:
            return pickle.dumps(self)
        finally:
            self._builder.put_before(rows)

    def take_over(self, copy: TrackFollower) -> None:
        """Go on from where a copy, made since the last ``look`` and read on, has got to."""
        copy._builder.put_before(self._builder.take_rows())
        self._builder, self._files, self.errors = copy._builder, copy._files, copy.errors

    def track(self) -> RankTrack:
        """Return what was read so far; it stays as it is when more is read."""
        parts = [file.reader.content() for file in self._files.values()]
        return self._builder.track(joined(parts, [p.name for p in self._files]), list(self._files))


_PORTION = 1 << 18
"""Bytes, as many as a whole file is read by at once."""


def read_in_turns(followers: Iterable[TrackFollower], seconds: float) -> bool:
    """Read for about so long, at least a portion of each; returns whether nothing is left."""
    deadline = time.monotonic() + seconds
    unread = list(followers)
    while unread:
        unread = [follower for follower in unread if follower.read(_PORTION)]
        if time.monotonic() >= deadline:
            break
    return not unread


_WORTH_IT = 32 << 20
"""Bytes from which on starting processes takes less time than it saves."""
_GRACE_S = 10.0
"""For starting, and for handing over what was read."""
_PROGRAM = "import sys; sys.path[:] = {path!r}; from {module} import main; main()"


def processes_for(size: int, files: int) -> int:
    """Return in how many processes that many bytes are read soonest; 1: in this one."""
    return min(files, usable_cores()) if size >= _WORTH_IT else 1


class ReadingAside:
    """Processes that are starting, and read on once they are told what; this one shows the rest.

    For a process with threads of somebody else's: a fork of it may hang, and ``multiprocessing``
    would import its program again and leave processes behind when it is killed.  A process here
    reads for a bounded time, and has nobody to write to when its parent has ended.
    """

    def __init__(self, processes: int) -> None:
        program = [sys.executable, "-c", _PROGRAM.format(path=sys.path, module=__name__)]
        pipe, none = subprocess.PIPE, subprocess.DEVNULL
        self._processes = [
            subprocess.Popen(program, stdin=pipe, stdout=pipe, stderr=none)
            for _ in range(processes)
        ]
        self._shares: list[Sequence[TrackFollower]] = []
        self._answers: dict[int, list[TrackFollower]] = {}

    def begin(self, followers: Sequence[TrackFollower], seconds: float) -> None:
        """Read these for about so long; nobody may ``look`` or ``read`` before the ``end``."""
        ordered = sorted(followers, key=lambda f: f.read_bytes - f.total_bytes)
        count = len(self._processes) + 1
        self._shares = [ordered[i::count] for i in range(count)]
        self._deadline = time.monotonic() + seconds
        self._threads = [
            threading.Thread(target=self._ask, args=(i, request, seconds), daemon=True)
            for i in range(len(self._processes))
            for request in [pickle.dumps(([f.copied() for f in self._shares[i]], seconds))]
        ]
        for thread in self._threads:
            thread.start()

    def _ask(self, i: int, request: bytes, seconds: float) -> None:
        process = self._processes[i]
        try:
            answer, _ = process.communicate(request, seconds + _GRACE_S)
            self._answers[i] = pickle.loads(answer)
        except (subprocess.TimeoutExpired, OSError, EOFError, pickle.UnpicklingError):
            pass  # as a process that was killed, or has no memory left: it is read here instead
        finally:
            process.kill()
            process.wait()

    def end(self) -> bool:
        """Read the share of this process, wait, and let the followers take over.

        Returns whether all processes could read theirs.
        """
        read_in_turns(self._shares[-1], self._deadline - time.monotonic())
        for thread in self._threads:
            thread.join()
        for i, copies in self._answers.items():
            for follower, copy in zip(self._shares[i], copies, strict=True):
                follower.take_over(copy)
        return len(self._answers) == len(self._processes)


def main() -> None:
    """Read on what comes from the parent."""
    gc.disable()
    copies, seconds = pickle.load(sys.stdin.buffer)
    followers = [pickle.loads(copy) for copy in copies]
    read_in_turns(followers, seconds)
    pickle.dump(followers, sys.stdout.buffer, pickle.HIGHEST_PROTOCOL)
