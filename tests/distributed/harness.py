"""Runs scenarios in real gloo ranks, started by torch's launcher, under a deadline.

    pytest -> launch({module: scenarios}, ranks) -> torchrun -> worker.py on each rank -> one result
    file a scenario and rank -> Launch

One group of processes runs many scenarios, since starting one costs seconds.  A scenario that
raises is reported by its own test; one that hangs is killed at the deadline with all its processes.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
WORKER = Path(__file__).with_name("worker.py")


@dataclass
class Launch:
    """What the ranks of one launch left behind, by scenario; read when a test asks for it."""

    directory: Path
    modules: dict[str, str]
    """Each scenario's module."""
    ranks: int
    output: str
    exit_code: int | None

    def __getitem__(self, scenario: str) -> list[Any]:
        """Return the scenario's result on each rank; fails the test where it raised or hung."""
        name = f"{self.modules[scenario]}:{scenario}"
        results = []
        for rank in range(self.ranks):
            path = self.directory / f"{name}.{rank}"
            if not path.exists():
                tail = self.output[-6000:]
                raise AssertionError(
                    f"rank {rank} did not finish {name} (exit code {self.exit_code}):\n{tail}"
                )
            failed, value = pickle.loads(path.read_bytes())
            if failed:
                raise AssertionError(f"rank {rank} failed in {name}:\n{value}")
            results.append(value)
        return results


def free_port() -> int:
    """Return a loopback port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def launch(
    factory: pytest.TempPathFactory,
    scenarios: Mapping[str, Sequence[str]],
    *,
    ranks: int,
    deadline_s: float = 150,
) -> Launch:
    """Run scenarios, functions by their module in this folder, in order on each of ``ranks`` ranks.

    Raises ``ValueError`` where two modules have a scenario of one name.
    """
    pairs = [(module, name) for module, names in scenarios.items() for name in names]
    modules = {name: module for module, name in pairs}
    if len(modules) != len(pairs):
        raise ValueError(f"two scenarios of one name in {pairs}; rename one of them")
    directory = factory.mktemp("launch")
    environment = {
        **os.environ,
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": f"{REPOSITORY}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
        "PYTHONWARNINGS": "ignore",
    }
    command = [
        *(sys.executable, "-m", "torch.distributed.run"),
        *("--nnodes", "1", "--nproc-per-node", str(ranks)),
        *("--master-addr", "127.0.0.1", "--master-port", str(free_port())),
        *(str(WORKER), str(directory), *(f"{module}:{name}" for module, name in pairs)),
    ]
    process = subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=deadline_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        output += f"\nkilled: not done after {deadline_s} s"
    finally:
        _kill_workers(directory)
    return Launch(directory, modules, ranks, output, process.returncode)


def _kill_workers(directory: Path) -> None:
    """Kill ranks that outlived the launcher: each runs in a session of its own."""
    for path in directory.glob("pid.*"):
        try:
            os.kill(int(path.read_text()), signal.SIGKILL)
        except ProcessLookupError:
            continue
