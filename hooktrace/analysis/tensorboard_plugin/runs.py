"""The runs under the logdir, and each in memory: read as far as time allows, then as files grow.

    logdir --walk--> <run>/plugins/hooktrace/rank*.jsonl --resolve--> {run's name: folder}
    "what is there?" --> RunReader.refresh(budget) --read--> Snapshot
    all other requests --> RunReader.latest() --> the same Snapshot --scene(model)--> Scene

A request names a run; the name is looked up in what the walk found and never joined to a path, so
that no file outside of the logdir is read.  Folders that are links are not walked: what they lead
to inside the logdir has a name of its own.

Reading takes a bounded time, all ranks in turns, so that the first picture of a large run comes
early, has all ranks, and grows with the requests that follow.  Only what is new is read.

A scene is made anew when there is more: that takes 0.3 s of 10^6 stages, and the page rests five
times as long.  Little of it could stay: ranks' files grow at different times, so that the waits of
a step come late, and which ranks are late is marked in all steps.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path

from ...records.files import find_records
from ..run import RankTrack, Run, TrackFollower, read_in_turns, run_of
from ..run.run import once
from ..run.scene import Scene

_FRESH_S = 5.0
"""How long a walk of the logdir is good for: TensorBoard itself looks every 5 s."""


class NotThereError(LookupError):
    """A request names something that is not there; the message says what."""


class Runs:
    """The runs under a folder, ``None`` where there is none; ``clock`` gives seconds.

    A run's name is its path below the folder, ``.`` for the folder itself.
    """

    def __init__(self, root: Path | None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._root = root
        self._clock = clock
        self._lock = threading.Lock()
        self._found: dict[str, Path] = {}
        self._found_at = -_FRESH_S

    def names(self) -> list[str]:
        """Return the names of all runs that have record files, sorted."""
        return sorted(self._look())

    def files(self, name: str) -> dict[int, list[Path]]:
        """Return a run's files by rank, as ``find_records`` does, those inside the logdir.

        Raises ``NotThereError`` for a name that no run has.
        """
        folder = self._look().get(name)
        if folder is None or self._root is None:
            raise NotThereError("there is no such run")
        root = os.path.realpath(self._root)
        found = {
            rank: [path for path in paths if _is_inside(path, root)]
            for rank, paths in find_records(folder).items()
        }
        return {rank: paths for rank, paths in found.items() if paths}

    def _look(self) -> dict[str, Path]:
        with self._lock:
            now = self._clock()
            if now - self._found_at >= _FRESH_S:
                self._found = {} if self._root is None else dict(_walked(self._root))
                self._found_at = now
            return self._found


def _walked(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield the runs below a folder, by name."""
    real_root = os.path.realpath(root)
    for folder, folders, _ in os.walk(root):
        traces = os.path.join(folder, "plugins", "hooktrace")
        if "plugins" in folders and _is_inside(traces, real_root) and find_records(folder):
            yield os.path.relpath(folder, root).replace(os.sep, "/"), Path(folder)
        folders[:] = sorted(f for f in folders if f != "plugins")


def _is_inside(path: str | Path, real_root: str) -> bool:
    real = os.path.realpath(path)
    return real == real_root or real.startswith(real_root.rstrip(os.sep) + os.sep)


_LONGEST_S = 3.0
"""How long a request reads, once there is a first picture."""
_KEPT = 4
"""Runs that stay in memory."""


@dataclass
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
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def scene(self, model: str) -> Scene:
        """Return a model's scene; raises ``NotThereError`` where the run has no such model."""
        if model not in self.run.model_names:
            raise NotThereError("the run has no such model")
        with self._lock:  # once, whatever is asked for at once
            return _scene(self.run, model)


_scene = once(Scene)


class RunReader:
    """Reads one run.  ``files`` tells what it consists of now; raises as that does."""

    def __init__(self, files: Callable[[], dict[int, list[Path]]]) -> None:
        files()
        self._files = files
        self._lock = threading.Lock()
        self._ranks: dict[int, TrackFollower] = {}
        self._tracks: dict[int, RankTrack] = {}
        self._snapshot: Snapshot | None = None

    def latest(self, budget_s: float) -> Snapshot:
        """Return what ``refresh`` returned last."""
        return self._snapshot or self.refresh(budget_s)

    def refresh(self, budget_s: float) -> Snapshot:
        """Read what is new, at least a portion of each rank; at first for about ``budget_s``."""
        with self._lock:
            found = self._files()
            self._ranks = {rank: self._ranks.get(rank) or TrackFollower() for rank in sorted(found)}
            for rank, follower in self._ranks.items():
                follower.look(found[rank])
            followers = self._ranks.values()
            read_in_turns(followers, _LONGEST_S if self._snapshot else budget_s)
            errors = {name: why for one in followers for name, why in one.errors.items()}
            total = sum(one.total_bytes for one in followers)
            # A follower's track is the same until it has read more.
            tracks = {id(track): track for track in (one.track() for one in followers)}
            if self._snapshot is None or tracks.keys() != self._tracks.keys():
                version = 1 + (self._snapshot.version if self._snapshot else 0)
                read = sum(one.read_bytes for one in followers)
                run = run_of([*tracks.values()])
                self._tracks, self._snapshot = tracks, Snapshot(run, version, read, total, errors)
            self._snapshot.total_bytes, self._snapshot.errors = total, errors
            return self._snapshot


def readers(files: Callable[[str], dict[int, list[Path]]]) -> Callable[[str], RunReader]:
    """Return what gives a run's reader, and keeps those of the runs that were asked for last."""
    return lru_cache(_KEPT)(lambda run: RunReader(partial(files, run)))
