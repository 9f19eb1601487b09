"""Runs in memory: read as far as time allows, then as their files grow.

    "what is there?" --> RunCache.refresh(run, budget) --read--> Snapshot
    all other requests --> RunCache.get(run) --> the latest Snapshot --scene(model)--> Scene

Reading takes a bounded time, all ranks in turns, so that the first picture of a large run comes
early, has all ranks, and grows with the requests that follow.  Of a large run processes of its own
read most of the rest while the picture is drawn.  Only what is new is read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path

from ..run import ReadingAside, Run, TrackFollower, processes_for, read_in_turns, run_of
from .runs import NotThereError
from .scene import Scene

_LONGEST_S = 3.0
_WHILE_THEY_START_S = 0.2
_MOST_PROCESSES = 8
"""Of a machine that others may work on."""
_KEPT = 4
"""Runs that stay in memory."""


@dataclass(slots=True)
class Snapshot:
    """A run as far as it was read.

    ``version`` changes with what was read.  ``read_bytes`` of ``total_bytes`` are in it.
    ``errors``: files that cannot be read, with the reason.
    """

    run: Run
    version: int
    read_bytes: int
    total_bytes: int
    errors: dict[str, str]
    _scenes: dict[str, Scene] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def scene(self, model: str) -> Scene:
        """Return a model's scene; raises ``NotThereError`` where the run has no such model."""
        with self._lock:
            if model not in self._scenes:
                if model not in self.run.model_names:
                    raise NotThereError("the run has no such model")
                self._scenes[model] = Scene(self.run, model)
            return self._scenes[model]


class RunReader:
    """Reads one run.  ``files`` tells what it consists of now."""

    def __init__(self, files: Callable[[], dict[int, list[Path]]]) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._ranks: dict[int, TrackFollower] = {}
        self._reading_s = 0.0
        self._aside: ReadingAside | None = None
        self._may_start = True
        self._state: object = None
        self._snapshot: Snapshot | None = None

    def refresh(self, budget_s: float) -> Snapshot:
        """Read what is new for about ``budget_s`` at first, at least a portion of each rank.

        While there is more, each call takes as long as all before, up to ``_LONGEST_S``: a picture
        of what was read costs time too, and twice as much is worth a new one.
        """
        with self._lock:
            if self._aside is not None:
                self._may_start = self._aside.end()  # of those that failed it is read here
            found = self._files()
            ranks = {rank: self._ranks.get(rank) or TrackFollower() for rank in sorted(found)}
            self._ranks = ranks
            for rank, follower in ranks.items():
                follower.look(found[rank])
            self._read(budget_s)
            return self._current()

    def _read(self, budget_s: float) -> None:
        followers = list(self._ranks.values())
        began = time.monotonic()
        self._aside = self._others(followers)
        longer = max(budget_s, min(self._reading_s, _LONGEST_S))
        is_at_end = read_in_turns(followers, _WHILE_THEY_START_S if self._aside else longer)
        if self._aside is not None:
            self._aside.begin(followers, _LONGEST_S)
        self._reading_s = 0.0 if is_at_end else self._reading_s + time.monotonic() - began

    def _others(self, followers: list[TrackFollower]) -> ReadingAside | None:
        """Start processes where they are worth it; a system that lets none start has none."""
        left = sum(f.total_bytes - f.read_bytes for f in followers)
        processes = min(processes_for(left, len(followers)), _MOST_PROCESSES)
        if processes > 1 and self._may_start:
            with suppress(OSError):
                return ReadingAside(processes - 1)
        return None

    def latest(self) -> Snapshot | None:
        """Return what ``refresh`` returned last."""
        return self._snapshot

    def _current(self) -> Snapshot:
        ranks = self._ranks
        errors = {name: why for f in ranks.values() for name, why in f.errors.items()}
        total = sum(f.total_bytes for f in ranks.values())
        state = [(rank, id(f), f.read_bytes, f.epoch) for rank, f in ranks.items()]
        if self._snapshot is None or state != self._state:
            self._state = state
            self._snapshot = Snapshot(
                run_of([f.track() for f in ranks.values()]),
                version=self._snapshot.version + 1 if self._snapshot else 1,
                read_bytes=sum(f.read_bytes for f in ranks.values()),
                total_bytes=total,
                errors=errors,
            )
        self._snapshot.total_bytes, self._snapshot.errors = total, errors
        return self._snapshot


class RunCache:
    """The readers of the runs that were asked for last."""

    def __init__(self, files: Callable[[str], dict[int, list[Path]]], *, kept: int = _KEPT) -> None:
        @lru_cache(kept)
        def reader(run: str) -> RunReader:
            files(run)  # raises where there is no such run
            return RunReader(partial(files, run))

        self._reader = reader

    def refresh(self, run: str, budget_s: float) -> Snapshot:
        """Return the run as it is now; raises ``NotThereError`` for a name that no run has."""
        return self._reader(run).refresh(budget_s)

    def get(self, run: str, budget_s: float) -> Snapshot:
        """Return the run as ``refresh`` found it last; raises as ``refresh`` does."""
        reader = self._reader(run)
        return reader.latest() or reader.refresh(budget_s)
