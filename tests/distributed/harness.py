"""Real gloo ranks for tests: one launched group a world size runs the scenarios of all tests.

    @on(2) def test(rank) --> Ranks --> Group --forks.py--> worker.py, a rank
        <------ each rank's result, over a Unix socket <------

A scenario is a function of the rank in one of this folder's modules: a test that every rank runs
(``on``), or what a test asks the results of.  A group serves all of them, each under a deadline of
its own.  One that raises, hangs or ends its process fails its test alone: its group is killed with
all processes, and the next scenario runs in a fresh one.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import pytest

from tests.distributed.forks import Fork
from tests.ports import free_port

REPOSITORY = Path(__file__).resolve().parents[2]
WORKER = Path(__file__).with_name("worker.py")
START_S = 90.0
"""A group has that long to start: torch is imported before the first one, on a busy machine."""
DEADLINE_S = 120.0
GRACE_S = 5.0
"""After the first rank failed in a scenario the others have that long: they may wait for it."""
END_S = 120.0
"""A machine with thirty others at work let none of four ranks end in 30 s."""

Scenario = Callable[[int], Any]
"""Runs on every rank, which it is given; what it returns must pickle."""

launchers: set[int] = set()
"""Processes that the running groups were started by."""


Launched = Fork | subprocess.Popen[bytes]
Start = Callable[[Path, Path], Launched]
"""Starts a process whose ranks connect to a socket, the first, and print into a file, the second.
"""


def scenario(
    *, deadline_s: float = DEADLINE_S, apart: bool = False
) -> Callable[[Scenario], Scenario]:
    """Give a scenario more time, or a group of its own, where it leaves more than others behind."""

    def declared(function: Scenario) -> Scenario:
        vars(function).update(deadline_s=deadline_s, apart=apart)
        return function

    return declared


def on(*counts: int) -> Callable[[Scenario], Any]:
    """Make a test of a function that every rank runs, once for each number of ranks."""

    def declared(function: Scenario) -> Any:
        @pytest.mark.parametrize("ranks", counts)
        def test(ranks: int, groups: dict[int, Ranks]) -> None:
            groups[ranks].run(function)

        test.__name__, test.__qualname__ = function.__name__, function.__qualname__
        test.__doc__, test.__module__ = function.__doc__, function.__module__
        vars(test)["on_rank"] = function
        return test

    return declared


def name_of(function: Scenario) -> str:
    """Return by what a rank finds a scenario."""
    return f"{function.__module__}:{function.__qualname__}"


class ScenarioError(AssertionError):
    """A scenario raised, hung or ended its process; the message has what the ranks said."""


class Ranks:
    """All scenarios on one number of ranks."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._group: Group | None = None

    def run(self, function: Scenario) -> list[Any]:
        """Return the scenario's result on each rank; raises ``ScenarioError``."""
        apart = getattr(function, "apart", False)
        group = here(self.count) if apart else self._group or here(self.count)
        try:
            results = group.run(name_of(function), getattr(function, "deadline_s", DEADLINE_S))
        except BaseException:  # of a test's own timeout, or Ctrl-C, too
            group.kill()
            self._group = self._group if apart else None
            raise
        if apart:
            group.end()
        else:
            self._group = group
        return [pickle.loads(result) for result in results]

    def close(self) -> None:
        """End the group in order; ``ScenarioError`` where it does not end so."""
        group, self._group = self._group, None
        if group is not None:
            group.end()


class Group:
    """Processes with one gloo group between them."""

    def __init__(self, starts: Iterable[Start], ranks: int) -> None:
        """Start the processes, and wait for their ranks."""
        self._directory = tempfile.TemporaryDirectory(prefix="hooktrace-ranks-")
        self._log = Path(self._directory.name, "output.txt")
        self._connections: list[Connection] = []
        self._pids: list[int] = []
        self.processes: list[Launched] = []
        self._log.touch()
        control = Path(self._directory.name, "control")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(control))
            listener.listen(ranks)
            try:
                for start in starts:
                    process = start(control, self._log)
                    self.processes.append(process)
                    launchers.add(process.pid)
                self._accept(listener, ranks)
            except BaseException:
                self.kill()
                raise

    def begin(self, name: str) -> None:
        """Have a scenario begun that will not end; the group is good only to be killed then."""
        for connection in self._connections:
            connection.send(name)

    def run(self, name: str, deadline_s: float) -> list[bytes]:
        """Run a scenario, ``module:function``, and return each rank's pickled result.

        After a ``ScenarioError`` the group is good for nothing but to be killed.
        """
        start = self._log.stat().st_size
        self.begin(name)
        end = time.monotonic() + deadline_s
        waiting, results, failed = dict(enumerate(self._connections)), {}, []
        while waiting:
            ready = wait(list(waiting.values()), max(0.0, end - time.monotonic()))
            if not ready:
                break
            for rank, connection in [(r, c) for r, c in waiting.items() if c in ready]:
                try:
                    raised, value = connection.recv()
                except (EOFError, ConnectionResetError):
                    raised, value = True, "its process ended"
                del waiting[rank]
                results[rank] = value
                if raised:
                    failed.append(f"rank {rank} failed in {name}: {value}")
                    end = min(end, time.monotonic() + GRACE_S)
        if not waiting and not failed:
            return [results[rank] for rank in range(len(results))]
        if not failed:
            failed.append(f"{name} was not done after {deadline_s:.0f} s on ranks {[*waiting]}")
        raise ScenarioError("\n".join([*failed, self._stacks_and_output(waiting, start)]))

    def end(self) -> None:
        """Let the ranks end as a training job should; ``ScenarioError`` where they do not."""
        try:
            for connection in self._connections:
                connection.send(None)
            codes = [process.wait(END_S) for process in self.processes]
            if any(codes):
                raise OSError(f"exit codes {codes}")
        except BaseException as error:
            output = self.output()
            self.kill()
            if not isinstance(error, subprocess.TimeoutExpired | OSError):
                raise
            raise ScenarioError(f"the ranks did not end in order: {error}\n{output}") from error
        self._release()

    def kill(self) -> None:
        """Kill launchers and ranks, each with its session."""
        for pid in [*(process.pid for process in self.processes), *self._pids]:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        self._release()

    def _release(self) -> None:
        """Let go of processes that have ended, and remove what they wrote."""
        for process in self.processes:
            process.wait()
            launchers.discard(process.pid)
        for connection in self._connections:
            connection.close()
        self._directory.cleanup()

    def _accept(self, listener: socket.socket, ranks: int) -> None:
        """Learn each rank's process; ``ScenarioError`` where they do not start."""
        end = time.monotonic() + START_S
        found: dict[int, tuple[int, Connection]] = {}
        while len(found) < ranks:
            listener.settimeout(0.2)
            try:
                accepted, _ = listener.accept()
            except TimeoutError as error:
                ended = [process.poll() for process in self.processes if process.poll()]
                if ended or time.monotonic() > end:
                    said = f"a launcher ended with {ended}" if ended else f"not in {START_S:.0f} s"
                    raise ScenarioError(f"no {ranks} ranks: {said}\n{self.output()}") from error
                continue
            accepted.setblocking(True)
            connection = Connection(accepted.detach())
            rank, pid = connection.recv()
            found[rank] = pid, connection
            self._pids.append(pid)
            self._connections.append(connection)
        self._connections = [found[rank][1] for rank in range(ranks)]

    def _stacks_and_output(self, waiting: Mapping[int, Connection], start: int) -> str:
        """Return what was printed since ``start``, and the stacks of ranks that are not done."""
        for rank in waiting:
            with suppress(OSError):
                self._connections[rank].send("stacks")
        wait(list(waiting.values()), 2.0)
        return self.output(start)

    def output(self, start: int = 0) -> str:
        """Return the last of what the ranks printed."""
        with self._log.open("rb") as log:
            log.seek(start)
            return log.read().decode(errors="replace")[-12_000:]


def here(ranks: int, **more: object) -> Group:
    """Start a group on this machine's loopback; ``more``: of its environment."""
    shared = {"WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, **more}
    shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    return Group(
        [
            partial(Fork, environment(GLOO_SOCKET_IFNAME="lo", RANK=i, LOCAL_RANK=i, **shared))
            for i in range(ranks)
        ],
        ranks,
    )


def launched(command: Sequence[str], environment: Mapping[str, str]) -> Start:
    """Return what starts a launcher, whose last argument is the socket's path."""

    def start(control: Path, log: Path) -> Launched:
        with log.open("ab") as output:
            return subprocess.Popen(
                [*command, str(control)],
                env=environment,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    return start


def environment(**more: object) -> dict[str, str]:
    """Return the environment of a process that imports this repository's package, for tests."""
    paths = [str(REPOSITORY), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "PYTHONWARNINGS": "ignore",
        "TORCH_FR_BUFFER_SIZE": "500",  # more than a scenario needs; reading 2000 takes 40 ms
        **{name: str(value) for name, value in more.items()},
    }
