"""What the trace files are called, and which of them belong together.

    rank00000.trace.json            the first part of the newest run
    rank00000.trace.part1.json      its next part
    rank00000.trace.1.json          the first part of the run before that
    rank00000.trace.1.part1.json    the next part of that run

A part in the middle may be gone: the oldest goes when the files have reached their size.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

__all__ = ["TraceName", "find_traces", "part_path", "trace_path"]

_NAME = re.compile(r"rank(\d+)\.trace(?:\.(\d+))?(?:\.part(\d+))?\.json", re.ASCII)


class TraceName(NamedTuple):
    """What a file's name says.  ``age``: 0 is the newest run.  ``part``: from 0."""

    rank: int
    age: int
    part: int

    @classmethod
    def of(cls, path: Path) -> TraceName | None:
        """Return what the name of ``path`` says, ``None`` where it is no trace file's."""
        match = _NAME.fullmatch(path.name)
        return None if match is None else cls(*(int(group or 0) for group in match.groups()))

    def __str__(self) -> str:
        age = f".{self.age}" if self.age else ""
        part = f".part{self.part}" if self.part else ""
        return f"rank{self.rank:05d}.trace{age}{part}.json"


def trace_path(logdir: str | os.PathLike[str], rank: int) -> Path:
    """Return where the trace file of ``rank`` lies under ``logdir``: its first part."""
    return Path(logdir) / "plugins" / "hooktrace" / str(TraceName(rank, 0, 0))


def part_path(first: Path, part: int) -> Path:
    """Return where part ``part`` lies of the trace whose first part is ``first``."""
    name = TraceName.of(first)
    if name is None:
        raise ValueError(f"{first} is no trace file's name; pass what trace_path() gives")
    return first.with_name(str(name._replace(part=part)))


def find_traces(logdir: str | os.PathLike[str]) -> dict[int, list[Path]]:
    """Return the newest run's trace files under ``logdir`` by rank, the parts of each in order.

    ``logdir``: what was given to ``TraceFileExporter``, or the folder of the files itself.
    """
    for folder in (Path(logdir) / "plugins" / "hooktrace", Path(logdir)):
        found: dict[int, list[tuple[int, Path]]] = {}
        for path in folder.glob("rank*.trace*.json"):
            name = TraceName.of(path)
            if name is not None and name.age == 0:
                found.setdefault(name.rank, []).append((name.part, path))
        if found:
            return {rank: [path for _, path in sorted(found[rank])] for rank in sorted(found)}
    return {}
