"""The end of a process, and its forked children."""

from __future__ import annotations

import subprocess
import sys

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


FORK = """
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


def run_script(tail: str) -> subprocess.CompletedProcess[str]:
    """Run a process that makes two steps, and what follows, and does not close its tracer."""
    return subprocess.run(
        [sys.executable, "-c", SCRIPT + tail],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.slow
def test_a_forked_childs_tracer_is_closed() -> None:
    """Its hooks run untraced; the parent exports all of its own when it ends."""
    run = run_script(FORK)
    child, parent = run.stdout.splitlines()
    assert child == "child [] {} {}"
    assert (run.returncode, parent) == (0, "closed with steps [0, 1, 2]"), run.stderr


@pytest.mark.slow
def test_exit_with_an_exception_keeps_the_records() -> None:
    """A script that dies of its own error still exports, and keeps its exit code."""
    run = run_script("raise SystemExit(7)")
    assert (run.returncode, run.stdout) == (7, "closed with steps [0, 1]\n"), run.stderr
