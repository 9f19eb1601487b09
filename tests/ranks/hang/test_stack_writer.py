"""Stacks of real processes that hold their interpreter lock, or close while they are asked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hooktrace.ranks.channel.process import state_of
from hooktrace.ranks.hang import stack_writer
from hooktrace.ranks.hang.stack_writer import StackWriter, ask, written
from tests.ranks.channel.jobs import member_of, wait_for

_WRITER = """
import ctypes, os, sys
from hooktrace.ranks.hang.stack_writer import StackWriter
writer = StackWriter()
print(flush=True)
"""
_HOLDS = """
def holds_the_interpreter():
    while True:
        ctypes.PyDLL(None).usleep(60_000_000)  # which a signal ends
holds_the_interpreter()
"""
_CLOSES = """
for line in sys.stdin:
    writer.close()
    print("closed", flush=True)
"""


@contextmanager
def begun(program: str) -> Iterator[subprocess.Popen[str]]:
    """A process with a writer, which does what the program says."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", _WRITER + program]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "\n"
            yield child
        finally:
            child.kill()


def test_stacks_of_a_held_interpreter() -> None:
    """A process whose interpreter runs nothing writes them when it is asked, and lives."""
    with begun(_HOLDS) as child:
        known = member_of(child.pid)

        def holds() -> bool:
            said = written(known)
            if said and "holds_the_interpreter" not in said:
                ask(known)  # the first time was early
            return "holds_the_interpreter" in said

        assert wait_for(lambda: ask(known))
        assert wait_for(holds)
        assert child.poll() is None
    assert state_of(known) == "gone"
    assert not ask(known)
    assert written(known) == ""


def test_a_rank_that_closes_while_another_asks_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal arrives after its handler is gone: between a look and a signal anything may be."""
    kill = os.kill
    with begun(_CLOSES) as child:
        assert child.stdin is not None
        assert child.stdout is not None

        def closes() -> None:
            child.stdin.write("close\n")
            child.stdin.flush()
            assert child.stdout.readline() == "closed\n"

        def kill_late(pid: int, number: int) -> None:
            closes()
            kill(pid, number)

        monkeypatch.setattr(os, "kill", kill_late)
        assert ask(member_of(child.pid))
        closes()
        child.stdin.close()
        assert child.wait(20) == 0


def test_one_tracer_after_another_takes_the_same_signal() -> None:
    """It stays this process's own, and nobody's default action ends the process by it."""
    numbers = set()
    for _ in range(3):
        writer = StackWriter()
        numbers.add(offered())
        writer.close()
    (number,) = numbers
    ignored = stack_writer._mask(os.getpid(), "SigIgn")
    assert ignored is not None
    assert ignored >> (number - 1) & 1


def offered() -> int:
    """The signal by which others ask this process."""
    found = stack_writer._offered(member_of(os.getpid()))
    assert found is not None
    return found[1]


def test_nobody_is_signalled_who_has_no_handler() -> None:
    """The signal would end it."""
    file = os.memfd_create(f"hooktrace-stacks-{signal.SIGRTMAX}", 0)  # which a child inherits
    try:
        with subprocess.Popen(["sleep", "60"], pass_fds=[file]) as sleeper:
            assert wait_for(lambda: stack_writer._offered(member_of(sleeper.pid)) is not None)
            assert not ask(member_of(sleeper.pid))
            assert sleeper.poll() is None
            sleeper.kill()
    finally:
        os.close(file)


def test_signals_of_others_are_left_alone() -> None:
    """The first one that is free is taken, and the next writer takes it again."""
    before = stack_writer.free_signal()
    assert before is not None
    handler = signal.signal(before, lambda *_: None)
    try:
        writer = StackWriter()
        assert signal.getsignal(before) is not signal.SIG_DFL
        assert stack_writer.free_signal() not in {before, None}
        taken = offered()
        assert taken != before
        writer.close()
        assert stack_writer.free_signal() == taken
    finally:
        signal.signal(before, handler)


@pytest.mark.parametrize(("where", "name"), [(signal, "SIGRTMAX"), (os, "memfd_create")])
def test_a_system_without_such_signals_or_files(
    where: object, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does without."""
    monkeypatch.delattr(where, name)
    writer = StackWriter()
    assert stack_writer._offered(member_of(os.getpid())) is None
    writer.close()
