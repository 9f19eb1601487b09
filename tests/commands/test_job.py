"""A job is ended with all that it started, and its steps are counted while files grow."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from hooktrace.commands import job
from hooktrace.commands.job import MARK, StepCount, marked, run_job, why_of
from hooktrace.records.errors import UsageError
from hooktrace.records.files import record_path
from hooktrace.testing.synthetic import SyntheticJob, write_job

LAUNCHER = f"""
import os, subprocess, sys, time
sys.path[:0] = {sys.path!r}
child = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); "
child = subprocess.Popen([sys.executable, "-c", child + "time.sleep(600)"], start_new_session=True,
                         stdout=subprocess.PIPE)
child.stdout.readline()
open(sys.argv[1] + "/mark", "w").write(os.environ["{MARK}"])
from pathlib import Path
from hooktrace.testing.synthetic import SyntheticJob, write_job
write_job(SyntheticJob(ranks=2, steps=30), Path(sys.argv[1]) / "0")
if sys.argv[2] == "waits":
    time.sleep(600)
"""


@pytest.mark.parametrize("how", ["waits", "ends"])
def test_nothing_of_a_job_is_left(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even a child with a session of its own that does not listen, whose launcher is gone."""
    monkeypatch.setattr(job, "_GRACE_S", 0.5)
    count = StepCount(tmp_path, "synthetic")
    wanted = 30 if how == "waits" else 31
    code = run_job(
        [sys.executable, "-c", LAUNCHER, str(tmp_path), how], os.environ, tmp_path / "output",
        count=count, steps=wanted, deadline_s=60,
    )  # fmt: skip
    assert (tmp_path / "output").read_text() == ""
    assert code == (None if how == "waits" else 0)
    assert count.best() == (30, tmp_path / "0")
    assert marked((tmp_path / "mark").read_text()) == []


def test_a_deadline(tmp_path: Path) -> None:
    """It says how far the job came."""
    with pytest.raises(UsageError, match=r"made 0 of 5 steps in 0 s; ask for fewer steps"):
        run_job(
            [sys.executable, "-c", "import time; time.sleep(600)"], os.environ,
            tmp_path / "output", count=StepCount(tmp_path, "net"), steps=5, deadline_s=0.0,
        )  # fmt: skip


def test_steps_are_counted_as_files_grow(tmp_path: Path) -> None:
    """Whole lines only, of the one model, and of the rank that is behind."""
    write_job(SyntheticJob(ranks=2, steps=20, model="net"), tmp_path / "0")
    write_job(SyntheticJob(ranks=2, steps=30, model="other"), tmp_path / "1")
    path = record_path(tmp_path / "0", 1)
    whole = path.read_bytes()
    count = StepCount(tmp_path, "net")
    cuts = [len(whole) * part // 97 for part in range(98)]
    seen = []
    for cut in cuts:
        path.write_bytes(whole[:cut])
        seen.append(count.best()[0])
    assert seen == sorted(seen)
    assert (seen[0], seen[-1]) == (0, 20)
    assert len(set(seen)) > 10
    assert count.best()[1] == tmp_path / "0"


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
    ],
)  # fmt: skip
def test_the_line_that_says_why(tmp_path: Path, said: str, why: str) -> None:
    """The first error: a launcher says it all again, and other ranks lose their connections."""
    (tmp_path / "output.txt").write_text(said)
    assert why_of(tmp_path / "output.txt") == why
