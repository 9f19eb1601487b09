"""Where ranks stand is read from faulthandler's dumps."""

from __future__ import annotations

import faulthandler
import tempfile
from pathlib import Path

import pytest

import hooktrace
from hooktrace.testing.check.stacks import describe, parse, place_of

PACKAGE = Path(hooktrace.__file__).parent
TORCH = "/lib/python3/site-packages/torch"

DUMP = f"""
Thread 0x00007ff3 (most recent call first):
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
  File "<frozen runpy>", line 88 in _run_code

Extension modules: torch._C (total: 22)
"""


def test_ranks_that_stand_alike_are_told_together() -> None:
    """By the innermost frame of each thread that belongs to a hook; the drain is left out."""
    where = "2 threads in unpack (powerSGD_hook.py:589), backward() waits for the hook's future"
    assert describe({0: DUMP, 1: DUMP}) == f"ranks 0, 1: {where}"


def test_a_hook_is_found_below_torch_and_hooktrace() -> None:
    """Hooktrace's standard hooks are hooks, its other modules are not."""
    dump = f"""Thread 0x1 (most recent call first):
  File "{TORCH}/distributed/distributed_c10d.py", line 5 in all_reduce
  File "{PACKAGE}/collectives.py", line 9 in start
  File "{PACKAGE}/hooks/gather.py", line 12 in allgather
  File "{PACKAGE}/wrapper.py", line 3 in __call__
"""
    assert describe({3: dump}) == "rank 3: allgather (gather.py:12)"


def test_nothing_to_read_is_said() -> None:
    """A dump may be empty."""
    assert describe({0: ""}) == "rank 0: no Python code runs"


def test_real_dumps_are_read() -> None:
    """In this interpreter's own format."""
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        threads = parse(file.read())
    functions = [frame.function for frames in threads for frame in frames]
    assert "test_real_dumps_are_read" in functions


def test_the_place_of_an_error_is_the_hooks_own() -> None:
    """That of the first cause, where one was raised from another."""

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
