"""The asking side: starts the host, reads its messages as they come, and leaves no process.

    check(specs) --Job--> host (a process in a session of its own) --Message--> CheckResult a hook

The host's standard input is a pipe from here: when this process ends, whichever way, the host sees
its end, ends its ranks and itself.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ...records.errors import UsageError
from .results import CaseResult, CheckResult
from .spec import HookSpec, Job, Message

_POLL_S = 0.02
_SLACK_S = 30.0
_START_S = 150.0


def check(
    specs: Sequence[HookSpec],
    *,
    ranks: int = 2,
    timeout_s: float = 20.0,
    cases: Sequence[str] = (),
    seen: Callable[[HookSpec, CaseResult], None] = lambda spec, result: None,
) -> list[CheckResult]:
    """Run the cases over each hook and return a result for each.

    ``ranks``: gloo processes on this machine.  ``timeout_s``: of one case.  ``cases``: their keys,
    all by default.  ``seen``: called with each result.

    Raises ``UsageError`` for what cannot be checked: a hook that is not there, a state that cannot
    be made, options out of range.
    """
    if ranks < 1:
        raise UsageError(f"{ranks} ranks cannot train; pass 1 or more, 2 to see what is averaged")
    if not timeout_s > 0:
        raise UsageError(f"a case cannot be done in {timeout_s:g} s; pass a timeout above 0")
    job = Job(
        hooks=tuple(specs),
        cases=tuple(cases),
        ranks=ranks,
        timeout_s=timeout_s,
        sys_path=tuple(os.path.abspath(entry) for entry in sys.path),
    )
    results: list[list[CaseResult]] = [[] for _ in specs]
    for hook, result in _results(job):
        results[hook].append(result)
        seen(specs[hook], result)
    return [
        CheckResult(hook=spec.name, ranks=ranks, cases=tuple(cases))
        for spec, cases in zip(specs, results, strict=True)
    ]


def _results(job: Job) -> Iterator[tuple[int, CaseResult]]:
    """Yield each case's result with the number of its hook."""
    with tempfile.TemporaryDirectory(prefix="hooktrace-check-") as name:
        directory = Path(name)
        (directory / "job").write_bytes(pickle.dumps(job))
        with (directory / "log").open("wb") as log:
            host = subprocess.Popen(
                [sys.executable, "-m", "hooktrace.testing.check", name],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=_environment(job),
                start_new_session=True,
            )
        try:
            for number in itertools.count():
                wait_s = job.timeout_s + (_SLACK_S if number else _START_S)
                message = _next(host, directory, number, wait_s)
                if message is None:
                    break
                if isinstance(message, UsageError):
                    raise message
                yield message
        finally:
            _end(host)


def _next(host: subprocess.Popen[bytes], directory: Path, number: int, wait_s: float) -> Message:
    """Wait for a message of the host."""
    path = directory / f"message.{number}"
    deadline = time.monotonic() + wait_s
    while not path.exists():
        ended = host.poll() is not None
        if path.exists():
            break
        if ended or time.monotonic() > deadline:
            how = f"ended with {host.returncode}" if ended else f"said nothing for {wait_s:.0f} s"
            said = (directory / "log").read_text(errors="replace").strip()
            raise UsageError(
                f"the process that imports the hook {how}; look at what its module does when it "
                f"is imported. The end of its output: {said[-2000:] or 'none'}"
            )
        time.sleep(_POLL_S)
    message: Message = pickle.loads(path.read_bytes())
    path.unlink()
    return message


def _environment(job: Job) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(job.sys_path),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONWARNINGS": "ignore",
    }


def _end(host: subprocess.Popen[bytes]) -> None:
    """End the host and whatever it has forked: they share a session that nothing else is in."""
    assert host.stdin is not None
    with contextlib.suppress(ProcessLookupError):
        os.killpg(host.pid, signal.SIGKILL)
    host.stdin.close()
    host.wait()
