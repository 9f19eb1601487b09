"""What the record files are called, and which of them belong together.

    rank00000.jsonl            the first part of the newest run
    rank00000.part1.jsonl      its next part
    rank00000.1.jsonl          the first part of the run before that
    rank00000.1.part1.jsonl    the next part of that run

A part in the middle may be gone: the oldest goes when the files have reached their size.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, NamedTuple

from .base import MOST_RANKS

_NAME = re.compile(r"rank(\d+)(?:\.(\d+))?(?:\.part(\d+))?\.jsonl", re.ASCII)


class RecordFileName(NamedTuple):
    """What a file's name says.  ``age``: 0 is the newest run.  ``part``: from 0."""

    rank: int
    age: int
    part: int

    @classmethod
    def of(cls, path: Path) -> RecordFileName | None:
        """Return what the name of ``path`` says, ``None`` where it is no record file's."""
        match = _NAME.fullmatch(path.name)
        found = None if match is None else cls(*(int(group or 0) for group in match.groups()))
        return None if found is None or found.rank >= MOST_RANKS else found

    def __str__(self) -> str:
        age = f".{self.age}" if self.age else ""
        part = f".part{self.part}" if self.part else ""
        return f"rank{self.rank:05d}{age}{part}.jsonl"


def record_path(logdir: str | os.PathLike[str], rank: int) -> Path:
    """Return where the record file of ``rank`` lies under ``logdir``: its first part."""
    return Path(logdir) / "plugins" / "hooktrace" / str(RecordFileName(rank, 0, 0))


def part_path(first: Path, part: int) -> Path:
    """Return where part ``part`` lies of the run whose first part is ``first``."""
    name = RecordFileName.of(first)
    if name is None:
        raise ValueError(f"{first} is no record file's name; pass what record_path() gives")
    return first.with_name(str(name._replace(part=part)))


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file to read it; raises ``OSError``, also for a pipe or device, which may not end."""
    return open(path, "rb", opener=_regular)


def _regular(path: str, flags: int) -> int:
    fd = os.open(path, flags | os.O_NONBLOCK)  # of a pipe this would wait for who writes
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise OSError(errno.EINVAL, "it is not a regular file", path)


def size_of(paths: Iterable[Path]) -> int:
    """Return the bytes of all files; of one that cannot be looked at none."""
    return sum(path.stat().st_size for path in paths if path.is_file())


def ranks_files(folder: Path) -> list[tuple[RecordFileName, Path]]:
    """Return the record files in a folder, of all ranks and ages, in order."""
    found = ((RecordFileName.of(path), path) for path in folder.glob("rank*.jsonl"))
    return sorted((name, path) for name, path in found if name is not None)


def find_records(logdir: str | os.PathLike[str]) -> dict[int, list[Path]]:
    """Return the newest run's record files under ``logdir`` by rank, the parts of each in order.

    ``logdir``: what was given to ``RecordFileExporter``, or the folder of the files itself.
    """
    for folder in _folders(logdir):
        found: dict[int, list[Path]] = {}
        for name, path in ranks_files(folder):
            if name.age == 0:
                found.setdefault(name.rank, []).append(path)
        if found:
            return found
    return {}


def _folders(logdir: str | os.PathLike[str]) -> tuple[Path, Path]:
    return Path(logdir) / "plugins" / "hooktrace", Path(logdir)
