"""What is seen of other processes: real ones that stop, die, or hold their interpreter lock."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hooktrace.ranks.hang import processes
from hooktrace.ranks.hang.processes import Neighbour, Process, StackWriter, neighbour, process
from tests.ranks.channel.jobs import wait_for

_PROGRAM = """
import ctypes, sys, time
from pathlib import Path
from hooktrace.ranks.hang.processes import StackWriter
writer = StackWriter(3, Path(sys.argv[1]))
print(writer.why_not, flush=True)
def holds_the_interpreter():
    while True:
        ctypes.PyDLL(None).usleep(60_000_000)  # which a signal ends
holds_the_interpreter()
"""


def _holds(known: Neighbour) -> bool:
    """Return whether it holds the interpreter, by what it wrote; asks again if that was early."""
    written = known.stacks()
    if written and "holds_the_interpreter" not in written:
        known.ask()
    return "holds_the_interpreter" in written


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that does nothing."""
    with subprocess.Popen(["sleep", "60"]) as child:
        yield child
        child.kill()


def test_states(sleeper: subprocess.Popen[bytes]) -> None:
    """Running, stopped, running again, a zombie, gone."""
    known = process(sleeper.pid)
    assert known is not None
    assert known.state == "running"
    sleeper.send_signal(signal.SIGSTOP)
    assert wait_for(lambda: known.state == "stopped")
    sleeper.send_signal(signal.SIGCONT)
    assert wait_for(lambda: known.state == "running")
    sleeper.kill()
    assert wait_for(lambda: known.state == "zombie")
    sleeper.wait()
    assert known.state == "gone"
    assert process(sleeper.pid) is None


def test_a_number_that_is_used_again(sleeper: subprocess.Popen[bytes]) -> None:
    """It is another process that began at another time."""
    known = process(sleeper.pid)
    assert known is not None
    assert Process(known.pid, known.began - 1).state == "gone"


def test_stacks_of_a_held_interpreter(tmp_path: Path) -> None:
    """A process whose interpreter runs nothing writes them when it is asked, and lives."""
    folder = tmp_path / "private"
    command = [sys.executable, "-c", _PROGRAM, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"\n"
            known = neighbour(3, child.pid, folder)
            assert known is not None
            assert neighbour(2, child.pid, folder) is None
            assert wait_for(known.ask)
            assert wait_for(lambda: _holds(known))
            assert child.poll() is None
        finally:
            child.kill()
    assert not known.ask()
    StackWriter(0, folder).close()  # of another job that begins meanwhile
    found = neighbour(3, child.pid, folder)
    assert found is not None
    assert found.process.state == "gone"
    os.utime(known.path, (0, 0))
    StackWriter(0, folder).close()  # removes what was left long ago
    assert not folder.exists()


_CLOSES = """
import sys
from pathlib import Path
from hooktrace.ranks.hang.processes import StackWriter
writer = StackWriter(3, Path(sys.argv[1]))
print(writer.why_not, flush=True)
for line in sys.stdin:
    writer.close()
    print("closed", flush=True)
"""


def test_a_rank_that_closes_while_another_asks_it_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal arrives after its handler is gone: between a look and a signal anything may be."""
    folder, kill = tmp_path / "private", os.kill
    command = [sys.executable, "-c", _CLOSES, str(folder)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "\n"

        def closes() -> None:
            child.stdin.write("close\n")
            child.stdin.flush()
            assert child.stdout.readline() == "closed\n"

        def kill_late(pid: int, number: int) -> None:
            closes()
            kill(pid, number)

        monkeypatch.setattr(os, "kill", kill_late)
        known = neighbour(3, child.pid, folder)
        assert known is not None
        assert known.ask()
        closes()
        child.stdin.close()
        assert child.wait(20) == 0


def test_one_tracer_after_another_takes_the_same_signal(tmp_path: Path) -> None:
    """It stays this process's own, and nobody's default action ends the process by it."""
    numbers = set()
    for rank in range(3):
        writer = StackWriter(rank, tmp_path / "private")
        numbers.add(next((tmp_path / "private").iterdir()).name.split("-")[-1])
        writer.close()
    (number,) = numbers
    ignored = processes._mask(os.getpid(), "SigIgn")
    assert ignored is not None
    assert ignored >> (int(number) - 1) & 1


def test_nobody_is_signalled_who_has_no_handler(
    sleeper: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    """The signal would end it."""
    folder = tmp_path / "private"
    folder.mkdir(mode=0o700)
    known = process(sleeper.pid)
    assert known is not None
    (folder / f"stacks-0-{known.pid}-{known.began}-{signal.SIGRTMAX}").touch()
    found = neighbour(0, known.pid, folder)
    assert found is not None
    assert not found.ask()
    assert sleeper.poll() is None


def test_signals_of_others_are_left_alone(tmp_path: Path) -> None:
    """The first one that is free is taken, and the next writer takes it again."""
    before = processes.free_signal()
    assert before is not None
    handler = signal.signal(before, lambda *_: None)
    try:
        writer = StackWriter(0, tmp_path / "private")
        assert writer.why_not == ""
        assert signal.getsignal(before) is not signal.SIG_DFL
        assert processes.free_signal() not in {before, None}
        taken = int(next((tmp_path / "private").iterdir()).name.split("-")[-1])
        assert taken != before
        writer.close()
        assert processes.free_signal() == taken
    finally:
        signal.signal(before, handler)


def test_a_folder_that_is_not_private(tmp_path: Path) -> None:
    """Somebody else may have made it: nothing is offered, and nobody asked there."""
    folder = tmp_path / "open"
    folder.mkdir(mode=0o755)
    writer = StackWriter(0, folder)
    assert "not this user's alone" in writer.why_not
    assert neighbour(0, os.getpid(), folder) is None
    writer.close()


@pytest.mark.parametrize(("where", "name"), [(Path, "lstat"), (os, "open")])
def test_a_folder_that_its_last_process_removes_meanwhile(
    where: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is made again: else nobody would know of this one's state."""
    folder, call = tmp_path / "private", getattr(where, name)
    removed: list[None] = []

    def after_it_has_gone(*arguments: Any) -> Any:
        if not removed:
            removed.append(folder.rmdir())
        return call(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(where, name, after_it_has_gone)
        writer = StackWriter(0, folder)
    assert (removed, writer.why_not) == ([None], "")
    assert neighbour(0, os.getpid(), folder) is not None
    writer.close()
    assert not folder.exists()


def test_without_such_signals(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Another system: it does without, and says so."""
    monkeypatch.delattr(signal, "SIGRTMAX")
    writer = StackWriter(0, tmp_path / "private")
    assert "no signal that nobody uses" in writer.why_not
    writer.close()
