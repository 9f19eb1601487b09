"""A user's command, started and ended: as many steps of it as are asked for, and nothing left.

What ``hooktrace tune`` is to be made of; with it, ``integrations/chosen.py`` and
``tracing/redirected.py``.

    command --Popen, a session of its own--> launcher --> ranks --> files --StepCount--> steps
    enough, an error, Ctrl-C --SIGTERM, a grace, SIGKILL--> each process that carries the job's mark

torchrun's ranks have sessions of their own, so a signal to a group does not reach them: each
process of the job has a mark in its environment, and is signalled by its number.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from ..records.errors import UsageError
from ..records.files import RecordFileName
from ..records.reader import RecordReader
from ..records.step import StepRecord

MARK = "_HOOKTRACE_JOB"
_POLL_S = 0.5
_GRACE_S = 15.0
"""For a job that writes a checkpoint when it is asked to end."""
_GONE_S = 10.0
_SAID = re.compile(
    r"(\[rank\d+\]: ?)?((\w+\.)*\w*(Error|Exception|Exit)\b.*|\S+: (error:|can't open file) .*)"
)
"""How Python, and a parser of arguments, say why they end."""
_LAUNCHERS = ("ChildFailedError", "SignalException")


class StepCount:
    """Counts the steps of a model in record files that grow, under a folder of folders.

    What several tracers write lies in several folders; the one with most steps is the model's.
    """

    def __init__(self, folder: Path, model: str) -> None:
        self._folder, self._model = folder, model
        self._readers: dict[Path, tuple[RecordReader, Counter[str]]] = {}
        self._read: dict[Path, int] = {}

    def best(self) -> tuple[int, Path | None]:
        """Return how many steps each rank has written at least, and in which folder."""
        found: dict[Path, Counter[int]] = {}
        for path in sorted(self._folder.glob("*/plugins/hooktrace/rank*.jsonl")):
            name = RecordFileName.of(path)
            if name is not None and name.age == 0:
                found.setdefault(path.parents[2], Counter())[name.rank] += self._steps(path)
        counts = [(min(ranks.values()), folder) for folder, ranks in found.items()]
        return max(counts, default=(0, None))

    def _steps(self, path: Path) -> int:
        if path not in self._readers:
            counted: Counter[str] = Counter()

            def take(steps: Sequence[StepRecord]) -> None:
                counted.update(step.model for step in steps)

            self._readers[path] = RecordReader(buckets=lambda *_: None, steps=take), counted
        reader, steps = self._readers[path]
        with path.open("rb") as file:
            file.seek(self._read.get(path, 0))
            block = file.read()
        whole = block[: block.rfind(b"\n") + 1]
        self._read[path] = self._read.get(path, 0) + len(whole)
        if whole:
            reader.feed(whole)
        return steps[self._model]


def run_job(
    command: Sequence[str],
    environment: Mapping[str, str],
    output: Path,
    *,
    count: StepCount,
    steps: int,
    deadline_s: float,
) -> int | None:
    """Run a command until it has made ``steps``; return its exit code where it ended before.

    ``output``: a file for all that it prints.  Raises ``UsageError`` where it cannot be started, or
    does not come to its steps in time.
    """
    end = time.monotonic() + deadline_s
    with _started(command, environment, output) as job:
        while count.best()[0] < steps:
            with suppress(subprocess.TimeoutExpired):
                return job.wait(_POLL_S)
            if time.monotonic() > end:
                raise UsageError(
                    f"it made {count.best()[0]:,} of {steps:,} steps in {deadline_s:,.0f} s; ask "
                    "for fewer steps, or pass a command that trains faster"
                )
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
