"""A user's command, started, waited for, and ended where it does not end by itself.

    command --Popen, a session of its own--> launcher --> ranks, which end by themselves
    too late, Ctrl-C --SIGTERM, a grace, SIGKILL--> the launcher, then what carries the job's mark

torchrun's ranks have sessions of their own, so a signal to a group does not reach them: each
process of the job has a mark in its environment, and is signalled by its number.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from ...records.errors import UsageError

MARK = "_HOOKTRACE_JOB"
_GRACE_S = 15.0
"""For a job that writes a checkpoint when it is asked to end."""
_GONE_S = 10.0
_SAID = re.compile(
    r"(\[rank\d+\]: ?)?((\w+\.)*\w*(Error|Exception|Exit)(:.*)?|\S+: (error:|can't open file) .*)"
)
"""How Python, and a parser of arguments, say why they end."""
_LAUNCHERS = ("ChildFailedError", "SignalException")


def run_job(
    command: Sequence[str], environment: Mapping[str, str], output: Path, deadline_s: float
) -> int | None:
    """Run a command until it ends by itself; return its exit code, ``None`` past the deadline.

    ``output``: a file for all that it prints.  Raises ``UsageError`` where it cannot be started.
    """
    mark = os.urandom(8).hex()
    with output.open("wb") as file, _Interrupts() as interrupts:
        try:
            job = subprocess.Popen(
                command, env={**environment, MARK: mark}, stdin=subprocess.DEVNULL, stdout=file,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise UsageError(
                f"cannot start {command[0]!r}: {os.strerror(error.errno or 0)}; pass after -- the "
                "command that starts the job, as torchrun --nproc-per-node 2 train.py"
            ) from error
        try:
            interrupts.let_in()
            with suppress(subprocess.TimeoutExpired):
                return job.wait(deadline_s)
            return None
        finally:
            _end(job, mark)


class _Interrupts:
    """Ctrl-C and SIGTERM, which end the job: whoever sends them does not know of it.

    They wait for ``let_in``: a command that is being started could not be ended yet.
    """

    def __enter__(self) -> Self:
        self._raises, self._came = False, 0
        self._before = {n: signal.signal(n, self._take) for n in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def let_in(self) -> None:
        """Raise what has come, and what comes from now on at once."""
        self._raises = True
        if self._came:
            self._take(self._came, None)

    def _take(self, number: int, frame: object) -> None:
        if not self._raises:
            self._came = number
            return
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)


def _end(job: subprocess.Popen[bytes], mark: str) -> None:
    """End a job's processes: the launcher, which ends its ranks, then what is left of all."""
    is_launched = job.poll() is None
    for number, seconds in ((signal.SIGTERM, _GRACE_S), (signal.SIGKILL, _GONE_S)):
        if job.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(job.pid, number)
        are_all_asked = number == signal.SIGKILL or not is_launched
        for pid in marked(mark) if are_all_asked else ():
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        end = time.monotonic() + seconds
        while job.poll() is None or (are_all_asked and marked(mark)):
            if time.monotonic() > end:
                break
            time.sleep(0.05)


def marked(mark: str) -> list[int]:
    """Return the processes that carry a mark; none are known where there is no ``/proc``."""
    wanted, found = f"{MARK}={mark}".encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # another user's, or it has ended since
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


def why_of(output: Path) -> str:
    """Return the line that says why a job failed: its first error, else the last thing it said.

    The first: other ranks then lose their connections, and a launcher says it all again.
    """
    lines = [line.strip() for line in output.read_text("utf-8", "replace").splitlines()]
    errors = (match for line in lines if (match := _SAID.fullmatch(line)))
    said = [m[2] for m in errors if not any(name in m[2] for name in _LAUNCHERS)]
    spoken = [line for line in lines if any(c.isalnum() for c in line)]
    return said[0] if said else (spoken or ["it said nothing"])[-1]
