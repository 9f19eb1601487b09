"""Two ranks of which one is late, looked at from a terminal while they train."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from typing import Any

import torch
import torch.distributed as dist

from hooktrace.exporters import RecordFileExporter
from hooktrace.records import JobStepRecord
from hooktrace.tracing.tracer import Tracer

from .control_scenarios import Job

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
        """Type something."""
        os.write(self._leader, keys)

    def code(self) -> int:
        """Return the exit code."""
        try:
            return self._process.wait(_DEADLINE_S)
        finally:
            self._process.kill()
            os.close(self._leader)


def looked_at(rank: int) -> dict[str, Any]:
    """Train until rank 0 has seen what it wants to: the job's record, and the terminal."""
    shared = [tempfile.mkdtemp(prefix="hooktrace-job-") if rank == 0 else None]
    dist.broadcast_object_list(shared)
    seen: dict[str, Any] = {}
    with Tracer([RecordFileExporter(str(shared[0]))], error_every=0) as tracer:
        job = Job(rank, tracer)
        looking = threading.Thread(target=_look, args=(tracer, str(shared[0]), seen))
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
    seen["lost"] = tracer.losses()
    return seen


def _look(tracer: Tracer, logdir: str, seen: dict[str, Any]) -> None:
    end = time.monotonic() + _DEADLINE_S
    while time.monotonic() < end:
        of_job = tracer.records(JobStepRecord)
        seen["last"] = [r.spread.last_rank for r in of_job if r.spread.last_rank is not None]
        seen["ranks"] = {(r.world_size, r.spread.ranks) for r in of_job}
        if len(seen["last"]) >= _ENOUGH:
            break
        time.sleep(0.1)
    terminal = Terminal("top", logdir)
    seen["told"] = terminal.until("2 of 2 ranks have told")
    seen["keys"] = terminal.until("q quit")
    terminal.press(b"\x1b[B")
    terminal.press(b"\r")
    seen["stacks"] = terminal.until("thread 'MainThread'")
    terminal.press(b"x")
    seen["back"] = terminal.until("period ms")
    terminal.press(b"d")
    seen["detail"] = terminal.until("2 ranks: net: steps")
    terminal.press(b"q")
    terminal.until("\x1b[?1049l")  # the screen as it was before
    seen["code"] = terminal.code()
    seen["shown"] = terminal.shown
