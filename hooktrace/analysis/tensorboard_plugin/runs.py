"""Which runs lie under the logdir, and the files of one: never a file outside of it.

    logdir --walk--> <run>/plugins/hooktrace/rank*.jsonl --resolve--> {run's name: folder}

A request names a run; the name is looked up in what the walk found and never joined to a path.
Folders that are links are not walked: what they lead to inside the logdir has a name of its own.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ...records.files import find_records

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
