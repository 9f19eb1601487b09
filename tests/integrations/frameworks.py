"""Scripts under real frameworks, in the environment that ``.ci/run`` makes for them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from hooktrace.staging.job import loopback
from tests.distributed.harness import REPOSITORY
from tests.integrations.rows import PYTHON

DEADLINE_S = 300
TWO_RANKS = (
    "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1",
    "--nproc-per-node", "2",
)  # fmt: skip

needs_frameworks = pytest.mark.skipif(
    not PYTHON,
    reason="HOOKTRACE_TEST_FRAMEWORKS names no Python with what .ci/frameworks.txt lists",
)


ALONE = ("unshare", "--net", "sh", "-c", 'ip link set lo up; exec "$@"', "sh")
"""Starts a command whose network is its own loopback: Ray listens on the host's address."""


def check_namespaces() -> None:
    """Skip the test where ``ALONE`` cannot be."""
    for program in ("unshare", "ip"):
        if shutil.which(program) is None:
            pytest.skip(f"no {program}")
    if subprocess.run([*ALONE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no network namespace can be made")


def run(arguments: Sequence[str | Path], folder: Path, *, within: Sequence[str] = ()) -> str:
    """Return what a script says on standard output; no process outlives it.

    ``within``: the command that starts Python.
    """
    return call(arguments, folder, within=within)[0]


def call(
    arguments: Sequence[str | Path], folder: Path, *, within: Sequence[str] = ()
) -> tuple[str, str]:
    """Return what a script says on standard output, and on standard error, as ``run`` does."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("HOOKTRACE_", "OTEL_"))}
    environment |= {
        "PYTHONPATH": str(REPOSITORY),
        "GLOO_SOCKET_IFNAME": loopback(),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    with subprocess.Popen(
        [*within, PYTHON, *map(str, arguments)], cwd=folder, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            said, errors = process.communicate(timeout=DEADLINE_S)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, errors[-6000:]
    return said, errors


def on_two_ranks(script: str | Path, folder: Path, *arguments: str | Path) -> str:
    """Return what a script says that a launcher starts twice."""
    return run([*TWO_RANKS, REPOSITORY / script, *arguments], folder)
