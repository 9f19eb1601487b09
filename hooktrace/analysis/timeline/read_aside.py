"""Followers that are read on in processes of their own, while this one shows what it has.

    followers --copies--> a process a core but one: read_in_turns --further on--> take over
              --a share for the last core, read here when they are waited for--+

For a process with threads of somebody else's: a fork of it may hang, and ``multiprocessing`` would
import its program again and leave processes behind when it is killed.  A process here reads for a
bounded time, and has nobody to write to when its parent has ended.
"""

from __future__ import annotations

import gc
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

from ...records.cores import usable_cores
from .follow import TrackFollower, read_in_turns

_WORTH_IT = 32 << 20
"""Bytes from which on starting processes takes less time than it saves."""
_GRACE_S = 10.0
"""For starting, and for handing over what was read."""
_PROGRAM = "import sys; sys.path[:] = {path!r}; from {module} import main; main()"


def processes_for(size: int, files: int) -> int:
    """Return in how many processes that many bytes are read soonest; 1: in this one."""
    return min(files, usable_cores()) if size >= _WORTH_IT else 1


class ReadingAside:
    """Processes that are starting, and read once they are told what."""

    def __init__(self, processes: int) -> None:
        self._readers = [_Reader() for _ in range(processes)]
        self._own: Sequence[TrackFollower] = ()
        self._deadline = 0.0

    def begin(self, followers: Sequence[TrackFollower], seconds: float) -> None:
        """Read these for about so long; nobody may ``look`` or ``read`` before the ``end``."""
        ordered = sorted(followers, key=lambda f: f.read_bytes - f.total_bytes)
        shares = len(self._readers) + 1
        for index, reader in enumerate(self._readers):
            reader.begin(ordered[index::shares], seconds)
        self._own, self._deadline = ordered[shares - 1 :: shares], time.monotonic() + seconds

    def end(self) -> bool:
        """Read the share of this process, wait, and let the followers take over.

        Returns whether all processes could read theirs.
        """
        read_in_turns(self._own, self._deadline - time.monotonic())
        return all(list(map(_Reader.end, self._readers)))  # of each, also after one that failed


class _Reader:
    """One process, and the thread that waits for it."""

    def __init__(self) -> None:
        program = _PROGRAM.format(path=sys.path, module=__name__)
        self._process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._followers: Sequence[TrackFollower] = ()
        self._copies: list[TrackFollower] | None = None

    def begin(self, followers: Sequence[TrackFollower], seconds: float) -> None:
        self._followers = followers
        request = pickle.dumps(([follower.copied() for follower in followers], seconds))
        self._thread = threading.Thread(target=self._wait, args=(request, seconds), daemon=True)
        self._thread.start()

    def _wait(self, request: bytes, seconds: float) -> None:
        try:
            answer, _ = self._process.communicate(request, seconds + _GRACE_S)
            self._copies = pickle.loads(answer)
        except (subprocess.TimeoutExpired, OSError, EOFError, pickle.UnpicklingError):
            pass  # as a process that was killed, or has no memory left: it is read here instead
        finally:
            self._process.kill()
            self._process.wait()

    def end(self) -> bool:
        self._thread.join()
        for follower, copy in zip(self._followers, self._copies or (), strict=False):
            follower.take_over(copy)
        return self._copies is not None


def main() -> None:
    """Read on what comes from the parent."""
    gc.disable()
    copies, seconds = pickle.load(sys.stdin.buffer)
    followers = [pickle.loads(copy) for copy in copies]
    read_in_turns(followers, seconds)
    pickle.dump(followers, sys.stdout.buffer, pickle.HIGHEST_PROTOCOL)
