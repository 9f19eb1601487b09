"""Starts the host, the process that all ranks are forked from, and reads what it finds.

The host sees the end of its standard input when this process ends, whichever way, and then ends its
ranks and itself.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from ...records.errors import UsageError
from .result import CaseResult, CheckResult
from .spec import HookSpec

_ENVIRONMENT = {
    "PYTHONWARNINGS": "ignore",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


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

    Raises ``UsageError`` for what cannot be checked: a hook or a state's factory that is not there,
    options out of range.  What a factory raises, a rank raises: its case fails with that.
    """
    if ranks < 1:
        raise UsageError(f"{ranks} ranks cannot train; pass 1 or more, 2 to see what is averaged")
    if not timeout_s > 0:
        raise UsageError(f"a case cannot be done in {timeout_s:g} s; pass a timeout above 0")
    results = [CheckResult(hook=spec.name, ranks=ranks) for spec in specs]
    with tempfile.TemporaryDirectory(prefix="hooktrace-check-") as name:
        log = Path(name) / "log"
        host = _start(name, log)
        assert host.stdin is not None
        assert host.stdout is not None
        try:
            pickle.dump((tuple(specs), tuple(cases), ranks, timeout_s), host.stdin)
            host.stdin.flush()
            while (message := pickle.load(host.stdout)) is not None:
                if isinstance(message, UsageError):
                    raise message
                place, result = message
                results[place].cases.append(result)
                seen(specs[place], result)
        except (EOFError, BrokenPipeError) as error:
            said = log.read_text(errors="replace").strip()[-2000:]
            raise UsageError(
                f"the process that imports the hook ended with {host.wait()}; look at what its "
                f"module does when it is imported. The end of its output: {said or 'none'}"
            ) from error
        finally:
            # The host and its ranks share a session that nothing else is in.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(host.pid, signal.SIGKILL)
            host.communicate()
    return results


def _start(directory: str, log: Path) -> subprocess.Popen[bytes]:
    """Start the host, which imports from where this process does, and is alone in its session."""
    paths = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", f"{__package__}.host", directory],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            env=os.environ | _ENVIRONMENT | {"PYTHONPATH": paths},
            start_new_session=True,
        )
