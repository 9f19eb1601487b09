"""A rank's record files while they are being written: what is new is read, nothing twice.

    files --whole lines since the last call--> ColumnBuilder (rows stay) --track--> RankTrack

    followers --read_in_turns--> all of them further on

A line that is only half there waits for its end.  A file that was replaced (its inode is another)
or cut begins anew: its rank starts over with all its files.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...records.content import joined
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

    ``errors``: what the last ``look`` could not open, by file name, with the reason.
    """

    def __init__(self) -> None:
        self.errors: dict[str, str] = {}
        self._restart()

    def _restart(self) -> None:
        self._builder = ColumnBuilder()
        self._files: dict[Path, _File] = {}
        self._track: RankTrack | None = None

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
                self._track = None
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
        self._track = None
        file.reader.feed(block[:end])
        file.position += end
        return end

    def track(self) -> RankTrack:
        """Return what was read so far; it stays as it is, and the same, until more is read."""
        if self._track is None:
            parts = [file.reader.content() for file in self._files.values()]
            records = joined(parts, [path.name for path in self._files])
            self._track = self._builder.track(records, list(self._files))
        return self._track


_PORTION = 1 << 18
"""Bytes, as many as a whole file is read by at once."""


def read_in_turns(followers: Iterable[TrackFollower], seconds: float) -> None:
    """Read for about so long, at least a portion of each."""
    deadline = time.monotonic() + seconds
    unread = list(followers)
    while unread:
        unread = [follower for follower in unread if follower.read(_PORTION)]
        if time.monotonic() >= deadline:
            break
