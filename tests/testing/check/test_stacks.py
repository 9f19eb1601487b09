"""Where ranks stand is read from tracebacks, and from faulthandler's dumps."""

from __future__ import annotations

import faulthandler
import tempfile
import traceback
from pathlib import Path

import pytest

import hooktrace
from hooktrace.testing.check.stacks import places, split, where

PACKAGE = Path(hooktrace.__file__).parent
TORCH = "/lib/python3/site-packages/torch"
WAITS = f"""Thread 0x00007ff1 (most recent call first):
  File "/lib/python3/threading.py", line 331 in wait
  File "{PACKAGE}/drain.py", line 129 in _main
Current thread 0x00007ff0 (most recent call first):
  File "{TORCH}/autograd/graph.py", line 979 in _engine_run_backward
  File "<frozen runpy>", line 88 in _run_code"""
THEIRS = f"""Thread 0x00007ff3 (most recent call first):
  File "{TORCH}/futures/__init__.py", line 1 in wait
  File "{TORCH}/distributed/algorithms/ddp_comm_hooks/powerSGD_hook.py", line 589 in unpack
{WAITS}"""
OURS = f"""Thread 0x1 (most recent call first):
  File "{TORCH}/distributed/distributed_c10d.py", line 5 in all_reduce
  File "{PACKAGE}/hooks/gather.py", line 12 in allgather
  File "/home/me/train.py", line 2 in main"""


@pytest.mark.parametrize(
    ("dump", "place"),
    [
        (THEIRS, "in unpack (powerSGD_hook.py:589)"),
        (OURS, "in allgather (gather.py:12)"),
        (WAITS, "in backward(), which waits for the hook's future"),
        ("Thread 0x1 (most recent call first):\n", "no code of the hook runs"),
        ("", "no stacks"),
    ],
)
def test_the_innermost_frame_of_a_hook_counts(dump: str, place: str) -> None:
    """Torch's and hooktrace's standard hooks are hooks, the rest of both is not."""
    assert where(dump) == place


@pytest.mark.parametrize("header", ["Timeout (0:00:20)!", "Fatal Python error: Aborted"])
def test_a_dump_is_found_after_what_was_printed(header: str) -> None:
    """The list of extension modules is left out."""
    output = f"a line\n{header}\n{WAITS}\n\nExtension modules: torch._C (total: 22)\n"
    assert split(output) == ("a line\n", f"{header}\n{WAITS}")
    assert split("a line\n") == ("a line\n", "")


def test_real_stacks_are_read() -> None:
    """Dumps and tracebacks, in this interpreter's own format."""
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        assert "in test_real_stacks_are_read (test_stacks.py:" in where(file.read())
    try:
        raise ValueError("boom")
    except ValueError:
        assert places(traceback.format_exc())[-1].startswith("test_real_stacks_are_read (test_st")
