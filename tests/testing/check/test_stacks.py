"""Where ranks stand is read from faulthandler's dumps."""

from __future__ import annotations

import faulthandler
import tempfile
from pathlib import Path

import pytest

import hooktrace
from hooktrace.testing.check.stacks import place_of, split, where

PACKAGE = Path(hooktrace.__file__).parent
TORCH = "/lib/python3/site-packages/torch"

DUMP = f"""Thread 0x00007ff3 (most recent call first):
  File "{TORCH}/futures/__init__.py", line 1 in wait
  File "{TORCH}/distributed/algorithms/ddp_comm_hooks/powerSGD_hook.py", line 589 in unpack
Thread 0x00007ff2 (most recent call first):
  File "{TORCH}/distributed/algorithms/ddp_comm_hooks/powerSGD_hook.py", line 589 in unpack
Thread 0x00007ff1 (most recent call first):
  File "/lib/python3/threading.py", line 331 in wait
  File "{PACKAGE}/drain.py", line 129 in _main
Current thread 0x00007ff0 (most recent call first):
  File "{TORCH}/autograd/graph.py", line 979 in _engine_run_backward
  File "{PACKAGE}/check/training.py", line 116 in backward
  File "<frozen runpy>", line 88 in _run_code"""


def test_the_innermost_frame_of_a_hook_counts() -> None:
    """In each thread; the export thread is left out, and hooktrace's standard hooks are hooks."""
    waits = "in backward(), which waits for the hook's future"
    assert where(DUMP) == f"2 threads in unpack (powerSGD_hook.py:589), {waits}"
    dump = f"""Thread 0x1 (most recent call first):
  File "{TORCH}/distributed/distributed_c10d.py", line 5 in all_reduce
  File "{PACKAGE}/collectives.py", line 9 in start
  File "{PACKAGE}/hooks/gather.py", line 12 in allgather
  File "{PACKAGE}/wrapper.py", line 3 in __call__
  File "/home/me/train.py", line 2 in main
"""
    assert where(dump) == "in allgather (gather.py:12)"
    assert where("Thread 0x1 (most recent call first):\n") == "no code of the hook runs"


@pytest.mark.parametrize("header", ["Timeout (0:00:20)!", "Fatal Python error: Aborted"])
def test_a_dump_is_found_after_what_was_printed(header: str) -> None:
    """The list of extension modules is left out."""
    output = f"a line\n{header}\n{DUMP}\n\nExtension modules: torch._C (total: 22)\n"
    assert split(output) == ("a line\n", f"{header}\n{DUMP}")
    assert split("a line\n") == ("a line\n", "")


def test_real_dumps_are_read() -> None:
    """In this interpreter's own format."""
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        assert "in test_real_dumps_are_read (test_stacks.py:" in where(file.read())


def test_the_place_of_an_error_is_the_hooks_own() -> None:
    """That of the first cause, if one was raised from another."""

    def hook() -> None:
        raise ValueError("boom")

    def around() -> None:
        try:
            hook()
        except ValueError as error:
            raise RuntimeError("around it") from error

    with pytest.raises(RuntimeError) as caught:
        around()
    assert place_of(caught.value).startswith("hook (test_stacks.py:")
