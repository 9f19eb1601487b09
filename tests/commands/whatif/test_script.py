"""A script that cannot be verified on says so, with the remedy; here it writes a made-up run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hooktrace.analysis.whatif.choice import Choice
from hooktrace.commands.whatif.script import Script, why_of
from hooktrace.integrations.chosen import shapes_key
from hooktrace.records.errors import UsageError
from tests.analysis.whatif.answers import answer

MADE_UP = shapes_key([(1_000_000,)] * 8)
"""Of the parameters of a made-up run."""
WRITES = """
import os
from hooktrace.testing.synthetic import SyntheticJob, write_job
write_job(SyntheticJob({job}), os.path.join(os.environ["_HOOKTRACE_REDIRECT"], "0"))
"""


def run(code: str, folder: Path, *, shapes: str = MADE_UP, choice: Choice | None = None) -> None:
    script = Script([sys.executable, "-c", code], shapes)
    script.run(answer(), choice or Choice(), 1000, folder / "0")


def test_a_script_that_ends_itself_has_made_its_steps(tmp_path: Path) -> None:
    run(WRITES.format(job="ranks=2, model='net'"), tmp_path)


@pytest.mark.parametrize(
    ("job", "why"),
    [
        ("ranks=2", "no model 'net' was seen, but synthetic; pass the command of the run"),
        ("ranks=4, model='net'", "it trained on 4 ranks, and the run on 2; start as many"),
        ("ranks=2, model='net', hook='fp16_compress_hook'", "with fp16 and buckets of unknown"),
        ("ranks=2, model='net', hook='mine'", "with mine and buckets of unknown size, not with al"),
    ],
)
def test_what_is_not_the_run(tmp_path: Path, job: str, why: str) -> None:
    with pytest.raises(UsageError) as error:
        run(WRITES.format(job=job), tmp_path)
    assert why in str(error.value)
    assert str(error.value).endswith(f"its output is in {tmp_path / '0' / 'output.txt'}")


def test_what_does_not_train(tmp_path: Path) -> None:
    """It fails, is not there, makes no model, or has another one of the same name."""
    for i, (code, why) in enumerate([
        ("print('so far'); raise OSError('no data')", "failed with exit code 1: OSError: no data;"),
        ("print('so far')", "no DDP model was seen in it"),
    ]):  # fmt: skip
        with pytest.raises(UsageError, match=why):
            run(code, tmp_path / str(i))
    with pytest.raises(UsageError, match="has other parameters than the run's"):
        run(
            WRITES.format(job="ranks=2, model='net'"),
            tmp_path / "other",
            shapes=shapes_key([(2, 2)]),
        )
    with pytest.raises(UsageError, match=r"cannot start 'torchrum': No such file.*; pass after --"):
        Script(["torchrum", "train.py"], MADE_UP).run(answer(), Choice(), 10, tmp_path / "x")


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
