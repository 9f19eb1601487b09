"""Two ranks under command while they train: from rank 0, by a call and from a terminal."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import hooktrace
from hooktrace import hooks
from hooktrace.exporters import RecordFileExporter
from hooktrace.exporters.retention import Retention
from hooktrace.records.files import record_path
from hooktrace.records.reader import read_parts
from hooktrace.tracing.tracer import Tracer

LEAST = Retention(first_steps=0, window_steps=0, window_every=1_000_000, extra_share=0.0)
"""Nothing is kept in detail unless somebody asks."""


class Job:
    """A model that trains until rank 0 has what it waits for."""

    def __init__(self, rank: int, tracer: Tracer) -> None:
        torch.manual_seed(0)
        layers = [torch.nn.Linear(32, 32) for _ in range(4)]
        self.rank = rank
        self.ddp = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=0.005)
        hooktrace.instrument(self.ddp, hooks.fp16_compress_hook, tracer=tracer, model="net")

    def train(self, steps: int, *, nan: bool = False) -> None:
        """Train some steps; with ``nan`` gradients are not finite."""
        for _ in range(steps):
            inputs = torch.full((4, 32), torch.nan if nan else 1.0)
            self.ddp(inputs).square().mean().backward()

    def under(self, command: Any) -> Any:
        """Train on, on both ranks, until rank 0's command has been carried out by a thread."""
        found: list[Any] = []
        if self.rank == 0:
            found = [command()]
        dist.barrier()
        return found[0] if found else None


# On a busy machine a rank may take long to answer, and this is not of ranks that do not.
@mock.patch("hooktrace.ranks.control.hub._TIMEOUT_S", 20.0)
@mock.patch("hooktrace.ranks.control.hub._WHERE_S", 20.0)
def commands(rank: int) -> dict[str, Any]:
    """Detail, probes, pause and resume, one after another."""
    shared = [tempfile.mkdtemp(prefix="hooktrace-control-") if rank == 0 else None]
    dist.broadcast_object_list(shared)
    logdir = str(shared[0])
    said: dict[str, Any] = {}
    with Tracer([RecordFileExporter(logdir, retention=LEAST)], error_every=10) as tracer:
        job = Job(rank, tracer)
        job.train(40)
        said["mode"] = _wait_for_channel(tracer, Path(logdir))
        said["status"] = job.under(tracer.job.status)
        said["detail"] = job.under(lambda: tracer.job.detail(5))
        job.train(40)
        said["probe"] = job.under(lambda: tracer.job.probe(4))
        job.train(60)
        said["bursts"] = [b.step for b in tracer.buckets() if b.error is not None]
        job.train(100)
        said["probed"] = [b.step for b in tracer.buckets() if b.error is not None]
        said["before"] = tracer.steps()[-1].step
        said["pause"] = job.under(tracer.job.pause)
        job.train(30)
        said["paused"] = tracer.steps()[-1].step
        said["resume"] = job.under(tracer.job.resume)
        job.train(90)
        said["after"] = tracer.steps()[-1].step
        said["probed after"] = [b.step for b in tracer.buckets() if b.error is not None]
        said["stacks"] = job.under(lambda: tracer.job.stacks(1))
        said["flush"] = job.under(tracer.job.flush)
        said["terminal"] = job.under(lambda: _ctl(logdir, "status"))
        said["losses"] = tracer.losses()
        del job
        dist.barrier()
    records = read_parts([record_path(logdir, rank)])
    said["in detail"] = sorted({bucket.step for bucket in records.buckets})
    said["left"] = Path(logdir, "plugins", "hooktrace", "channel.json").exists()
    return said


def _wait_for_channel(tracer: Tracer, logdir: Path) -> int:
    """Return the mode of the file that says where the hub is, once both ranks are there."""
    path = Path(logdir, "plugins", "hooktrace", "channel.json")
    end = time.monotonic() + 60
    while True:
        assert time.monotonic() < end, "the ranks have no channel"
        if path.exists() and tracer._channel is not None and tracer._channel.hub_places:
            both = tracer._channel.node.roster
            if len(both) == 2 or dist.get_rank():
                break
        time.sleep(0.01)
    dist.barrier()
    return path.stat().st_mode & 0o777


def _ctl(logdir: str, *words: str) -> Any:
    """Return what ``hooktrace ctl`` says in another process."""
    done = subprocess.run(
        [sys.executable, "-m", "hooktrace", "ctl", logdir, *words, "--json"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr
