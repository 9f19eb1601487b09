"""Ranks that need not import torch: forks of a process that has, and does nothing else.

Fork(environment, socket, file) --> Python's fork server, which has imported worker.py --> a rank
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Mapping
from multiprocessing import forkserver, get_context
from pathlib import Path
from unittest import mock


class Fork:
    """A rank in a session of its own; ``environment`` is all that it has of one."""

    def __init__(self, environment: Mapping[str, str], control: Path, log: Path) -> None:
        context = get_context("forkserver")
        context.set_forkserver_preload(["tests.distributed.worker"])
        with mock.patch.dict(os.environ, environment):
            forkserver.ensure_running()  # once; what its libraries read, as threads, is the ranks'
        # A daemon: where this process ends otherwise than in order, its ranks are ended.
        self._process = context.Process(target=_rank, args=(environment, control, log), daemon=True)
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    def poll(self) -> int | None:
        """Return the exit code once there is one."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit code; raises ``subprocess.TimeoutExpired``."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("a rank", timeout or 0.0)
        return self._process.exitcode


def _rank(environment: Mapping[str, str], control: Path, log: Path) -> None:
    os.setsid()
    output = os.open(log, os.O_WRONLY | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.environ.clear()
    os.environ.update(environment)
    from tests.distributed import worker

    worker.main(str(control))
    # As a program ends; what multiprocessing does is to leave at once, whatever is still alive.
    ctypes.pythonapi.Py_Exit(0)
