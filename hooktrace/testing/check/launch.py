"""Starts the host, the process that all ranks are forked from, and reads its messages.

The host holds one end of a connection to here: when this process ends, whichever way, the host sees
that, and ends its ranks and itself.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

from ...records.errors import UsageError
from .result import CaseResult, CheckResult
from .spec import HookSpec, Job, Message

_SLACK_S = 150.0
"""Beyond a case's deadline: the host imports torch and the hooks before the first one."""

_RECORDS = "16384"
"""Collectives that torch remembers; of a hook of many small rounds 2000 are soon forgotten."""


def check(
    specs: Sequence[HookSpec],
    *,
    ranks: int = 2,
    timeout_s: float = 20.0,
    cases: Sequence[str] = (),
    seen: Callable[[HookSpec, CaseResult], None] = lambda spec, result: None,
) -> list[CheckResult]:
    """Run the cases over each hook, return a result for each, and leave no process.

    ``ranks``: gloo processes on this machine.  ``timeout_s``: of one case.  ``cases``: their keys,
    all by default.  ``seen``: called with each result.

    Raises ``UsageError`` for what cannot be checked: a hook that is not there, a state that cannot
    be made, options out of range.
    """
    if ranks < 1:
        raise UsageError(f"{ranks} ranks cannot train; pass 1 or more, 2 to see what is averaged")
    if not timeout_s > 0:
        raise UsageError(f"a case cannot be done in {timeout_s:g} s; pass a timeout above 0")
    results = [CheckResult(hook=spec.name, ranks=ranks) for spec in specs]
    ours, theirs = Pipe()
    with ours, tempfile.TemporaryDirectory(prefix="hooktrace-check-") as name:
        log = Path(name) / "log"
        with theirs:
            host = _start(name, theirs.fileno(), log)
        try:
            ours.send(Job(tuple(specs), tuple(cases), ranks, timeout_s))
            while (message := _next(ours, timeout_s + _SLACK_S, host, log)) is not None:
                place, result = message
                results[place].cases.append(result)
                seen(specs[place], result)
        finally:
            # The host and its ranks share a session that nothing else is in.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(host.pid, signal.SIGKILL)
            host.wait()
    return results


def _start(directory: str, connection: int, log: Path) -> subprocess.Popen[bytes]:
    """Start the host, which imports from where this process does, and is alone in its session."""
    environment = {
        "PYTHONPATH": os.pathsep.join(os.path.abspath(entry) for entry in sys.path),
        "PYTHONWARNINGS": "ignore",
        "TORCH_FR_BUFFER_SIZE": _RECORDS,
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", f"{__package__}.host", directory, str(connection)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=os.environ | environment,
            pass_fds=[connection],
            start_new_session=True,
        )


def _next(
    connection: Connection, wait_s: float, host: subprocess.Popen[bytes], log: Path
) -> tuple[int, CaseResult] | None:
    """Wait for a message of the host; raises ``UsageError`` if that is one, or if none comes."""
    try:
        if connection.poll(wait_s):
            message: Message = connection.recv()
            if isinstance(message, UsageError):
                raise message
            return message
        how = f"said nothing for {wait_s:.0f} s"
    except (EOFError, ConnectionResetError):
        how = f"ended with {host.wait()}"
    said = log.read_text(errors="replace").strip()
    raise UsageError(
        f"the process that imports the hook {how}; look at what its module does when it is "
        f"imported. The end of its output: {said[-2000:] or 'none'}"
    )
