"""A job is ended with all that it started, and what it says at its end is read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hooktrace.commands.tune import job
from hooktrace.commands.tune.job import run_job, why_of
from tests.distributed.test_check import processes_of

LAUNCHER = """
import subprocess, sys, time
child = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); "
child = subprocess.Popen([sys.executable, "-c", child + "time.sleep(600)", sys.argv[1]],
                         stdout=subprocess.PIPE)
child.stdout.readline()
if sys.argv[2] == "waits":
    time.sleep(600)
"""


@pytest.mark.parametrize(("how", "code"), [("waits", None), ("ends", 0)])
def test_nothing_of_a_job_is_left(
    tmp_path: Path, how: str, code: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even a child that does not listen, whose launcher is gone."""
    monkeypatch.setattr(job, "GRACE_S", 0.5)
    command = [sys.executable, "-c", LAUNCHER, str(tmp_path), how]
    assert run_job(command, os.environ, tmp_path / "output", 5 if code is None else 60) == code
    assert (tmp_path / "output").read_text() == ""
    assert processes_of(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_while_a_job_is_started_ends_it(
    tmp_path: Path, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits until there is something to end; handlers are then as they were."""

    def started(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        made = popen(*arguments, **options)
        signal.raise_signal(number)
        return made

    popen, before = subprocess.Popen, signal.getsignal(number)
    monkeypatch.setattr(job.subprocess, "Popen", started)
    monkeypatch.setattr(job, "GRACE_S", 0.5)
    command = [sys.executable, "-c", LAUNCHER, str(tmp_path), "waits"]
    with pytest.raises(KeyboardInterrupt):
        run_job(command, os.environ, tmp_path / "output", 60)
    assert signal.getsignal(number) is before
    assert processes_of(tmp_path) == []


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("step 1\nstep 2\n====\n", "step 2"),
        ("", "it said nothing"),
        ("/bin/python: can't open file 't.py': [Errno 2] No such file\n===\n  traceback : see\n",
         "/bin/python: can't open file 't.py': [Errno 2] No such file"),
        ("usage: t.py\nt.py: error: unrecognized arguments: --lr\n", "t.py: error: unrecognized "
         "arguments: --lr"),
        ("[rank1]: ValueError: no data\n[rank0]: RuntimeError: Connection closed\n"
         "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n===\n",
         "ValueError: no data"),
        ("Error 0.23\nException in step 3 of 4\nbye\n", "bye"),
    ],
)  # fmt: skip
def test_the_line_that_says_why(tmp_path: Path, said: str, why: str) -> None:
    """The first error: a launcher says it all again, and other ranks lose their connections."""
    (tmp_path / "output.txt").write_text(said)
    assert why_of(tmp_path / "output.txt") == why
