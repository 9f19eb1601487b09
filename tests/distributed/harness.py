"""Runs scenarios in real gloo ranks, started by torch's launcher, under a deadline.

    pytest -> run(scenarios, ranks) -> torchrun -> worker.py on each rank -> one result file a
    scenario and rank -> Results

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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
WORKER = Path(__file__).with_name("worker.py")


@dataclass
class Results:
    """What the ranks of one launch left behind."""

    directory: Path
    ranks: int
    output: str
    exit_code: int | None

    def __getitem__(self, scenario: str) -> list[Any]:
        """Return the scenario's result on each rank; fails the test where it raised or hung."""
        results = []
        for rank in range(self.ranks):
            path = self.directory / f"{scenario}.{rank}"
            if not path.exists():
                tail = self.output[-6000:]
                raise AssertionError(
                    f"rank {rank} did not finish {scenario} (exit code {self.exit_code}):\n{tail}"
                )
            failed, value = pickle.loads(path.read_bytes())
            if failed:
                raise AssertionError(f"rank {rank} failed in {scenario}:\n{value}")
            results.append(value)
        return results


def free_port() -> int:
    """Return a loopback port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run(
    directory: Path, scenarios: list[str], *, ranks: int = 2, deadline_s: float = 150
) -> Results:
    """Run scenarios of ``worker.py`` one after another on each of ``ranks`` ranks."""
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
        *(str(WORKER), str(directory), *scenarios),
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
    return Results(directory, ranks, output, process.returncode)


def _kill_workers(directory: Path) -> None:
    """Kill ranks that outlived the launcher: each runs in a session of its own."""
    for path in directory.glob("pid.*"):
        try:
            os.kill(int(path.read_text()), signal.SIGKILL)
        except ProcessLookupError:
            continue
