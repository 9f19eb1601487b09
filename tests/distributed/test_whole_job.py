"""The whole job on two real ranks: its record at rank 0, ``hooktrace top``, torch's debug page."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import threading
import time
import urllib.request
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist

from hooktrace import DebugPage
from hooktrace.exporters import RecordFileExporter
from hooktrace.records import JobStepRecord
from hooktrace.tracing.tracer import Tracer
from tests.distributed.harness import on
from tests.distributed.models import shared_folder
from tests.distributed.test_control import Job
from tests.versions import HOOKS_GROUPS

pytestmark = pytest.mark.slow

LATE, LATE_S = 1, 0.1
"""Far more than a busy machine holds up the other rank."""

_ENOUGH = 9
"""Steps of which the most are to name it."""

_DEADLINE_S = 60.0


class Terminal:
    """A program in a terminal of 80 by 24; ``shown``: all that it wrote."""

    def __init__(self, *arguments: str) -> None:
        self._leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.shown = ""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "hooktrace", *arguments],
            stdin=follower, stdout=follower, stderr=follower, start_new_session=True,
            env={**os.environ, "TERM": "xterm"},
        )  # fmt: skip
        os.close(follower)

    def until(self, text: str) -> bool:
        """Return whether a text comes that was not there before."""
        end, since = time.monotonic() + _DEADLINE_S, len(self.shown)
        while text not in self.shown[since:] and time.monotonic() < end:
            if select.select([self._leader], [], [], 0.1)[0]:
                try:
                    self.shown += os.read(self._leader, 65536).decode(errors="replace")
                except OSError:  # the program has ended
                    break
        return text in self.shown[since:]

    def press(self, keys: bytes) -> None:
        os.write(self._leader, keys)

    def code(self) -> int:
        try:
            return self._process.wait(_DEADLINE_S)
        finally:
            self._process.kill()
            os.close(self._leader)


@on(2)
def test_the_whole_job_is_looked_at_while_it_trains(rank: int) -> None:
    """Rank 0 has records of all ranks that name the late one; ``top`` shows the job in a terminal.

    In most steps: a machine may hold up the other one once.
    """
    folder = shared_folder()
    seen: dict[str, Any] = {}
    with Tracer([RecordFileExporter(folder)], error_every=0) as tracer:
        job = Job(rank, tracer)
        looking = threading.Thread(target=_look, args=(tracer, folder, seen))
        if rank == 0:
            looking.start()
        ended = torch.zeros(())
        while not ended:
            time.sleep(LATE_S if rank == LATE else 0.0)
            job.train(1)
            ended.fill_(rank == 0 and not looking.is_alive())
            dist.broadcast(ended, 0)
        dist.barrier()
        del job
    assert tracer.losses() == {}
    if rank == 0:
        assert seen["last"].count(LATE) > len(seen["last"]) / 2
        assert (2, 2) in seen["ranks"]
        wanted = ("told", "keys", "ended")  # and the terminal as it was before
        assert {name: seen[name] for name in wanted} == dict.fromkeys(wanted, True), seen["shown"]
        assert seen["code"] == 0
        if HOOKS_GROUPS:
            assert "2 of 2 ranks have told" in seen["page"]
            assert '<a href="/hooktrace">hooktrace</a>' in seen["page"]
            assert "channel.json is not there: the job has ended" in debug_page(folder)


def _look(tracer: Tracer, logdir: Path, seen: dict[str, Any]) -> None:
    end = time.monotonic() + _DEADLINE_S
    while time.monotonic() < end:
        of_job = tracer.records(JobStepRecord)
        seen["last"] = [r.spread.last_rank for r in of_job if r.spread.last_rank is not None]
        seen["ranks"] = {(r.world_size, r.spread.ranks) for r in of_job}
        if len(seen["last"]) >= _ENOUGH:
            break
        time.sleep(0.1)
    if HOOKS_GROUPS:
        seen["page"] = debug_page(logdir)
    terminal = Terminal("top", str(logdir))
    seen["told"] = terminal.until("2 of 2 ranks have told")
    seen["keys"] = terminal.until("q quit")
    terminal.press(b"q")
    seen["ended"] = terminal.until("\x1b[?1049l")
    seen["code"] = terminal.code()
    seen["shown"] = terminal.shown


class Loopback(ThreadingHTTPServer):
    """In the place of torch's server, which listens on all addresses."""

    def __init__(self, address: tuple[str, int], handler: Any) -> None:
        super().__init__(("127.0.0.1", 0), handler)


def debug_page(run: Path) -> str:
    """Return the page of a run as the server of torch >= 2.14 gives it."""
    from torch.distributed.debug import _frontend

    with mock.patch.object(_frontend, "_IPv6HTTPServer", Loopback):
        frontend = _frontend.FrontendServer(0, [DebugPage(run)])
    try:
        address = f"http://127.0.0.1:{frontend._server.server_port}/hooktrace"
        with urllib.request.urlopen(address, timeout=_DEADLINE_S) as answer:
            return str(answer.read().decode())
    finally:
        frontend._server.shutdown()
        frontend._server.server_close()
        frontend.join()
