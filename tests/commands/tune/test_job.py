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
from hooktrace.commands.tune.job import MARK, marked, run_job, why_of

LAUNCHER = f"""
import os, subprocess, sys, time
sys.path[:0] = {sys.path!r}
child = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); "
child = subprocess.Popen([sys.executable, "-c", child + "time.sleep(600)"], start_new_session=True,
                         stdout=subprocess.PIPE)
child.stdout.readline()
open(sys.argv[1] + "/mark", "w").write(os.environ["{MARK}"])
if sys.argv[2] == "waits":
    time.sleep(600)
"""


@pytest.mark.parametrize("how", ["waits", "ends"])
def test_nothing_of_a_job_is_left(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even a child with a session of its own that does not listen, whose launcher is gone."""
    monkeypatch.setattr(job, "_GRACE_S", 0.5)
    command = [sys.executable, "-c", LAUNCHER, str(tmp_path), how]
    code = run_job(command, os.environ, tmp_path / "output", 5 if how == "waits" else 60)
    assert (tmp_path / "output").read_text() == ""
    assert code == (None if how == "waits" else 0)
    assert marked((tmp_path / "mark").read_text()) == {}


def test_ctrl_c_while_a_job_is_started_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits until there is something to end."""

    def started(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        made = popen(*arguments, **options)
        signal.raise_signal(signal.SIGINT)
        return made

    popen = subprocess.Popen
    monkeypatch.setattr(job.subprocess, "Popen", started)
    # What is started in the background may ignore the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    command = [sys.executable, "-c", LAUNCHER, str(tmp_path), "waits"]
    with pytest.raises(KeyboardInterrupt):
        run_job(command, os.environ | {"HERE": str(tmp_path)}, tmp_path / "output", 60)
    signal.signal(signal.SIGINT, before)
    assert not [one for one in Path("/proc").glob("[0-9]*/environ") if names(one, str(tmp_path))]


def names(path: Path, word: str) -> bool:
    """Return whether a process was told a word; no when it has gone, or is another user's."""
    try:
        return word.encode() in path.read_bytes()
    except OSError:
        return False


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
