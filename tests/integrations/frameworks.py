"""Scripts under real frameworks, in the environment that ``.ci/run`` makes for them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.distributed.harness import REPOSITORY
from tests.distributed.programs import TORCHRUN, finished
from tests.integrations.rows import PYTHON

TWO_RANKS = (*TORCHRUN, "--nproc-per-node", "2")

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


def call(
    arguments: Sequence[str | Path], folder: Path, *, within: Sequence[str] = ()
) -> tuple[str, str]:
    """Return what a script says on standard output and error; ``within``: what starts Python."""
    code, said, errors = finished(arguments, folder, python=(*within, PYTHON), HF_HUB_OFFLINE="1")
    assert code == 0, errors[-6000:]
    return said, errors


def run(arguments: Sequence[str | Path], folder: Path, *, within: Sequence[str] = ()) -> str:
    """Return what a script says on standard output."""
    return call(arguments, folder, within=within)[0]


def on_two_ranks(script: str | Path, folder: Path, *arguments: str | Path) -> str:
    """Return what a script says that a launcher starts twice."""
    return run([*TWO_RANKS, REPOSITORY / script, *arguments], folder)
