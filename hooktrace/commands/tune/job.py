"""A user's command, started, waited for, and ended where it does not end by itself.

    command --Popen, a session of its own--> launcher --> ranks, which end by themselves
    too late, Ctrl-C --SIGTERM, a grace, SIGKILL--> each process that carries the job's mark

torchrun's ranks have sessions of their own, so a signal to a group does not reach them: each
process of the job has a mark in its environment, and is signalled by its number.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
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

    ``output``: a file for all that it prints.  Raises ``UsageError`` where it cannot be started.
    """
    with _started(command, environment, output) as job, suppress(subprocess.TimeoutExpired):
        return job.wait(deadline_s)
    return None


def why_of(output: Path) -> str:
    """Return the line that says why a job failed: its first error, else the last thing it said.

    The first: other ranks then lose their connections, and a launcher says it all again.
    """
    lines = [line.strip() for line in output.read_text("utf-8", "replace").splitlines()]
    errors = (match for line in lines if (match := _SAID.fullmatch(line)))
    said = [m[2] for m in errors if not any(name in m[2] for name in _LAUNCHERS)]
    spoken = [line for line in lines if any(c.isalnum() for c in line)]
    return said[0] if said else (spoken or ["it said nothing"])[-1]


@contextmanager
def _started(
    command: Sequence[str], environment: Mapping[str, str], output: Path
) -> Iterator[subprocess.Popen[bytes]]:
    mark = os.urandom(8).hex()
    with output.open("wb") as file, _interrupted_by_sigterm():
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
            yield job
        finally:
            _end(job, mark)


@contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """Have SIGTERM raise, so that the job is ended; whoever sends it does not know of the job."""

    def leave(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _end(job: subprocess.Popen[bytes], mark: str) -> None:
    """End a job's processes: the launcher first, which ends its ranks."""
    if job.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            job.wait(_GRACE_S)
    else:
        _signal(mark, signal.SIGTERM)
        _wait_for_none(mark, _GRACE_S)
    _signal(mark, signal.SIGKILL)
    if job.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
        job.wait()
    _wait_for_none(mark, _GONE_S)


def _signal(mark: str, number: int) -> None:
    for pid in marked(mark):
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _wait_for_none(mark: str, seconds: float) -> None:
    end = time.monotonic() + seconds
    while marked(mark) and time.monotonic() < end:
        time.sleep(0.05)


def marked(mark: str) -> list[int]:
    """Return the processes that carry a mark; none are known where there is no ``/proc``."""
    wanted, found = f"{MARK}={mark}".encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # another user's, or it has ended since
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found
