"""Where a rank stands: faulthandler's dump of all threads, read back.

Thread 0x... (most recent call first):     --parse-->  [[Frame, Frame, ...], ...]
File "a.py", line 3 in f                 --where-->  "2 threads in f (a.py:3), backward waits"
"""

from __future__ import annotations

import re
import traceback
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[2]
_CHECK = f"{_PACKAGE}/testing/check/"
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<function>.*)$')
_PLUMBING = re.compile(
    r"/lib/python3[.\d]*/(?!(site|dist)-packages/)"
    r"|/torch/(?!distributed/algorithms/(ddp_comm_hooks|model_averaging)/)"
    rf"|^{re.escape(str(_PACKAGE))}/(?!hooks/)"
    r"|^<(frozen|string)"
)
"""Frames that say nothing of the hook: the innermost other one does."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One line of a stack."""

    file: str
    line: str
    function: str

    def __str__(self) -> str:
        return f"{self.function} ({self.file.rpartition('/')[2]}:{self.line})"


def parse(dump: str) -> list[list[Frame]]:
    """Return the threads of a dump, each with its innermost frame first."""
    threads: list[list[Frame]] = []
    for line in dump.splitlines():
        if line.startswith(("Thread 0x", "Current thread 0x")):
            threads.append([])
        elif threads and (found := _FRAME.match(line)):
            threads[-1].append(Frame(found["file"], found["line"], found["function"]))
    return threads


def describe(dumps: Mapping[int, str]) -> str:
    """Return in one line where the ranks stand, by rank; those that stand alike together."""
    places: dict[str, list[int]] = {}
    for rank, dump in sorted(dumps.items()):
        places.setdefault(_where(parse(dump)), []).append(rank)
    return "; ".join(
        f"{'rank' if len(ranks) == 1 else 'ranks'} {', '.join(map(str, ranks))}: {place}"
        for place, ranks in places.items()
    )


def place_of(error: BaseException) -> str:
    """Return where in its own code a hook raised; empty where that is not known."""
    found = ""
    seen: BaseException | None = error
    while seen is not None:
        for frame in traceback.extract_tb(seen.__traceback__):
            if not _PLUMBING.search(frame.filename):
                found = str(Frame(frame.filename, str(frame.lineno), frame.name))
        seen = seen.__cause__ or seen.__context__
    return found


def _where(threads: list[list[Frame]]) -> str:
    seen: Counter[str] = Counter()
    waits = []
    for frames in threads:
        hook = next((f for f in frames if not _PLUMBING.search(f.file)), None)
        if hook is not None:
            seen[str(hook)] += 1
        elif any(f.function == "_engine_run_backward" for f in frames):
            waits.append("backward() waits for the hook's future")
        elif case := next((f for f in frames if f.file.startswith(_CHECK)), None):
            waits.append(f"the check waits in {case}")
    parts = [place if n == 1 else f"{n} threads in {place}" for place, n in seen.items()]
    return ", ".join([*parts, *waits]) or "no Python code runs"
