"""A user's command, started, waited for, and ended where it does not end by itself.

    command --Popen, a session of its own--> launcher --> ranks, which end by themselves
    too late, Ctrl-C --SIGTERM to the launcher's process group, a grace, SIGKILL

torchrun's ranks have sessions of their own: torchrun ends them when it is asked to end.
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

GRACE_S, REST_S = 40.0, 3.0
"""For a job that is ended: torchrun takes 30 s before it kills ranks that do not end.  For what one
leaves that has ended: processes may be dead, and nobody asks for their exit codes."""
_ERROR = re.compile(
    r"(\[rank\d+\]: ?)?((\w+\.)*\w*(Error|Exception|Exit)(:.*)?|\S+: (error:|can't open file) .*)"
)
"""How Python, and a parser of arguments, say why they end."""


def run_job(
    command: Sequence[str], environment: Mapping[str, str], output: Path, deadline_s: float
) -> int | None:
    """Run a command until it ends by itself; return its exit code, ``None`` past the deadline.

    ``output``: a file for all that it prints.  Nothing of its process group is left.  Raises
    ``KeyboardInterrupt`` after SIGINT or SIGTERM, ``UsageError`` where it cannot be started.
    """
    asked = list[int]()  # to end; not by an exception, which might come before the job is known
    stops = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *_: asked.append(1)) for number in stops}
    try:
        with output.open("wb") as file:
            job = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=file,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        end = time.monotonic() + deadline_s
        while job.poll() is None and not asked and time.monotonic() < end:
            time.sleep(0.05)
        code = job.returncode
        _end(job, GRACE_S if code is None else REST_S)
    except OSError as error:
        raise UsageError(
            f"cannot start {command[0]!r}: {error.strerror}; pass after -- the command that starts "
            "the job, as torchrun --nproc-per-node 2 train.py"
        ) from error
    finally:
        for handler in before.items():
            signal.signal(*handler)
    if asked:
        raise KeyboardInterrupt
    return code


def _end(job: subprocess.Popen[bytes], grace_s: float) -> None:
    for number, seconds in ((signal.SIGTERM, grace_s), (signal.SIGKILL, REST_S)):
        end = time.monotonic() + seconds
        with suppress(ProcessLookupError):  # nothing of the group is left
            os.killpg(job.pid, number)
            while time.monotonic() < end:
                job.poll()
                os.killpg(job.pid, 0)
                time.sleep(0.05)


def why_of(output: Path) -> str:
    """Return the line that says why a job failed: its first error, else the last thing it said.

    The first: other ranks then lose their connections, and a launcher says it all again.
    """
    lines = [line.strip() for line in output.read_text("utf-8", "replace").splitlines()]
    errors = (found[2] for line in lines if (found := _ERROR.fullmatch(line)))
    said = (line for line in reversed(lines) if any(c.isalnum() for c in line))
    return next(errors, next(said, "it said nothing"))
