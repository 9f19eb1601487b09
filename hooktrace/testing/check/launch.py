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
from typing import Any

from ...records.errors import UsageError
from .result import CaseResult, CheckResult
from .spec import HookSpec

_ENVIRONMENT = {"PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def check_hook(
    hook: Callable[..., Any] | str,
    make_state: Callable[..., Any] | str | None = None,
    *,
    ranks: int = 2,
    local: bool = False,
    timeout_s: float = 20.0,
    cases: Sequence[str] = (),
) -> CheckResult:
    """Run a communication hook through all cases on real gloo ranks; for tests.

    ``hook``: the hook, importable from its module, or ``"package.module:attribute"``; for FSDP's
    collectives a ``ScatterHook`` or a ``GatherHook``, which takes no state.  ``make_state``: a
    callable or its name, called on each rank for each model, with the process group if it needs an
    argument.  ``ranks``: processes on this machine.  ``local``: the hook's results differ between
    ranks by design.  ``timeout_s``: of one case.  ``cases``: the keys of some cases only, as
    ``--case`` takes them.

    Returns the result if nothing failed, warnings included; takes about 15 seconds, and leaves no
    process.  Raises ``AssertionError`` with the result as a table if anything failed, ``TypeError``
    for a hook that cannot be handed to another process, ``UsageError`` for one that is not there
    and for options out of range.
    """
    spec = HookSpec.of(hook, make_state, local=local)
    result = check(spec, ranks=ranks, timeout_s=timeout_s, cases=cases)
    if result.failed:
        raise AssertionError(f"\n{result}")
    return result


def check(
    spec: HookSpec,
    *,
    ranks: int = 2,
    timeout_s: float = 20.0,
    cases: Sequence[str] = (),
    seen: Callable[[CaseResult], None] = lambda result: None,
) -> CheckResult:
    """Do as ``check_hook``, whatever fails; ``seen`` is called with each case's result at once."""
    if ranks < 1:
        raise UsageError(f"{ranks} ranks cannot train; pass 1 or more, 2 to see what is averaged")
    if not timeout_s > 0:
        raise UsageError(f"a case cannot be done in {timeout_s:g} s; pass a timeout above 0")
    found = CheckResult(hook=spec.name, ranks=ranks)
    with tempfile.TemporaryDirectory(prefix="hooktrace-check-") as name:
        log = Path(name) / "log"
        # It imports from where this process does, and is alone in its session.
        paths = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
        with log.open("wb") as output:
            host = subprocess.Popen(
                [sys.executable, "-P", "-m", f"{__package__}.host", name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                env=os.environ | _ENVIRONMENT | {"PYTHONPATH": paths},
                start_new_session=True,
            )
        assert host.stdin
        assert host.stdout
        try:
            pickle.dump((spec, tuple(cases), ranks, timeout_s), host.stdin)
            host.stdin.flush()
            while (message := pickle.load(host.stdout)) is not None:
                if isinstance(message, UsageError):
                    raise message
                found.cases.append(message)
                seen(message)
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
    return found
