"""Programs that tests run as users do, without the settings of the tests' own environment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from hooktrace.staging.job import loopback
from tests.distributed.harness import REPOSITORY

DEADLINE_S = 300
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]


def clean_environment(**more: str) -> dict[str, str]:
    """Return this process's environment without hooktrace's settings, for ranks on loopback."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HOOKTRACE_", "OTEL_"))}
    ours = {"PYTHONPATH": str(REPOSITORY), "GLOO_SOCKET_IFNAME": loopback(), "OMP_NUM_THREADS": "1"}
    return kept | ours | more


def finished(
    arguments: Sequence[str | Path],
    folder: Path,
    *,
    python: Sequence[str] = (sys.executable,),
    **environment: str,
) -> tuple[int, str, str]:
    """Return a Python process's exit code, standard output and error; no process outlives it.

    ``python``: the command that is Python.
    """
    with subprocess.Popen(
        [*python, *map(str, arguments)], cwd=folder, env=clean_environment(**environment),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            printed, said = process.communicate(timeout=DEADLINE_S)
        finally:
            if process.poll() is None:
                _end(process)
    return process.returncode, printed, said


def call(arguments: Sequence[str | Path], folder: Path, **environment: str) -> tuple[int, str]:
    """Return a Python process's exit code and standard error."""
    code, _, said = finished(arguments, folder, **environment)
    return code, said


def _end(process: subprocess.Popen[str]) -> None:
    """End a launcher, which ends its ranks: they have sessions of their own."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(40)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
