"""A user's command, started, waited for, and ended where it does not end by itself.

    command --Popen, with a mark in its environment--> launcher --> ranks, which end by themselves
    too late, Ctrl-C --SIGTERM to the launcher, a grace, SIGKILL to all that carry the mark

torchrun's ranks have sessions of their own, so a signal to a group does not reach them.
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

    ``output``: a file for all that it prints.  No process of it is left, also where an interrupt
    ends the wait, or comes while it is started.  Raises ``UsageError`` where it cannot be started.
    """
    mark, job = os.urandom(8).hex(), None
    try:
        with output.open("wb") as file:
            job = subprocess.Popen(
                command, env={**environment, MARK: mark}, stdin=subprocess.DEVNULL, stdout=file,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        with suppress(subprocess.TimeoutExpired):
            return job.wait(deadline_s)
        return None
    except OSError as error:
        raise UsageError(
            f"cannot start {command[0]!r}: {os.strerror(error.errno or 0)}; pass after -- the "
            "command that starts the job, as torchrun --nproc-per-node 2 train.py"
        ) from error
    finally:
        if job is not None and not Path("/proc").exists():
            job.terminate()
        _signal(mark, signal.SIGTERM, _GRACE_S)
        _signal(mark, signal.SIGKILL, _GONE_S)


def _signal(mark: str, number: signal.Signals, seconds: float) -> None:
    """Signal what is left of a job, and wait; SIGTERM goes to launchers, which end their ranks."""
    end = time.monotonic() + seconds
    asked = set[int]()
    while (left := marked(mark)) and time.monotonic() < end:
        for pid, parent in left.items():
            if pid not in asked and (number == signal.SIGKILL or parent not in left):
                asked.add(pid)
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
        time.sleep(0.05)


def marked(mark: str) -> dict[int, int]:
    """Return the processes that carry a mark, with their parents; it takes ``/proc``."""
    wanted, found = f"{MARK}={mark}".encode(), {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # another user's, or it has ended since
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                state = (folder / "stat").read_text().rpartition(")")[2].split()
                found[int(folder.name)] = int(state[1])
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
