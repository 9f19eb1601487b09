"""The end of a process, and its forked children."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

SCRIPT = """
import logging, os, sys
logging.basicConfig(level=logging.WARNING)
from hooktrace import Tracer
from tests.fakes import FakeExporter, Job

class Telling(FakeExporter):
    def export(self, batch):
        super().export(batch)
    def close(self):
        print("closed with steps", self.steps, flush=True)

tracer = Tracer([Telling()])
job = Job(tracer)
job.step()
job.step()
"""


def run_script(tail: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", SCRIPT + textwrap.dedent(tail)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture(scope="module")
def forked() -> subprocess.CompletedProcess[str]:
    """A process that forks a child, goes on, and ends without closing its tracer."""
    return run_script(
        """
        tracer.flush()
        child = os.fork()
        if child == 0:
            job.step()
            print("child", [s.step for s in tracer.steps()], tracer.failures(), tracer.losses())
            tracer.close()
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(child, 0)
        job.step()
        """
    )


@pytest.mark.slow
def test_interpreter_exit_without_close(forked: subprocess.CompletedProcess[str]) -> None:
    """Everything recorded is exported, and the process ends by itself."""
    last = forked.stdout.splitlines()[-1]
    assert (forked.returncode, last) == (0, "closed with steps [0, 1, 2]"), forked.stderr


@pytest.mark.slow
def test_exit_with_an_exception_keeps_the_records() -> None:
    """A script that dies of its own error still exports, and keeps its exit code."""
    run = run_script("raise SystemExit(7)")
    assert (run.returncode, run.stdout) == (7, "closed with steps [0, 1]\n"), run.stderr


@pytest.mark.slow
def test_a_forked_child_exports_nothing_and_says_so(
    forked: subprocess.CompletedProcess[str],
) -> None:
    """The child's tracer keeps records in memory; the parent's exporter is told of its own only."""
    child, _ = forked.stdout.splitlines()
    assert child == "child [2] {'fake': 1} {'not_exported': 1}"
    assert forked.stderr.count("make a new Tracer in the child") == 1
